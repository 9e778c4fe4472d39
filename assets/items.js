// The ready items of a queue, in the order in which they are taken.

import { get, path } from "./api.js";
import { h } from "./dom.js";
import { bytes, moment, visible } from "./format.js";
import { listing } from "./listing.js";
import { decode, firstLine, payloadView } from "./payload.js";

export function items(queue) {
  const list = listing({
    label: "Ready items",
    where: path(queue, "items"),
    rows: (answer) => answer.items,
    row,
    detail: (item) => opened(queue, item),
    empty: "Nothing is ready to be taken.",
    tools: [h("p", { class: "muted" }, "In the order in which they are taken. Looking changes nothing.")],
  });
  return { ...list, update: (it) => list.nudge(`${it.ready} ${it.done} ${it.leased}`) };
}

function row(item) {
  const payload = decode(item) ?? new Uint8Array();
  return [
    h("code", { class: "id" }, item.id),
    h("span", { class: "preview" }, visible(firstLine(payload)) || h("i", null, "empty")),
    h("span", { class: "meta" }, [
      item.attempt > 1 && `attempt ${item.attempt}`,
      item.enqueued_at && moment(item.enqueued_at),
      bytes(item.bytes ?? payload.length),
    ].filter(Boolean).join(" · ")),
  ];
}

function opened(queue, item) {
  const box = h("div");
  const draw = (it) => {
    const payload = decode(it) ?? new Uint8Array();
    const total = it.bytes ?? payload.length;
    const whole = async () => draw({ ...it, ...(await get(path(queue, "items", it.id))) });
    box.replaceChildren(facts(it), payloadView(payload, { name: `${it.id}.bin`, total, whole: total > payload.length ? whole : null }));
  };
  draw(item);
  return box;
}

// What goes beside the payload.
export function facts(it, more = []) {
  const all = [
    ["Id", it.id],
    ...more,
    ["Attempt", it.attempt > 1 ? String(it.attempt) : null],
    ["Pushed", it.enqueued_at ? moment(it.enqueued_at) : null],
    ["Content type", it.content_type],
    ["Trace parent", it.trace_parent],
    ["Unique key", it.unique ?? (it.unique_base64 && `${it.unique_base64} (base 64)`)],
    ...Object.entries(it.attributes ?? {}).map(([name, value]) => [`Attribute ${visible(name)}`, value]),
  ].filter(([, value]) => value != null && value !== "");
  return h("dl", { class: "facts" }, all.map(([name, value]) =>
    h("div", null, h("dt", null, name), h("dd", null, value instanceof Node ? value : visible(String(value))))));
}

