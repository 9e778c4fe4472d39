// The items of a queue in one state: ready, scheduled, retrying, running.

import { call, get, path } from "./api.js";
import { h } from "./dom.js";
import { bytes, moment, roughly, until, visible } from "./format.js";
import { listing } from "./listing.js";
import { decode, firstLine, payloadView } from "./payload.js";
import { followed, progressInRow } from "./progress.js";
import { timeline } from "./timeline.js";
import { action, ask, toast } from "./ui.js";

const SOON = 5000; // spans that are shown are as old as this at most

const STATES = {
  ready: {
    label: "Ready items", hint: "In the order in which they are fetched; in a keyed queue, those of each key. Looking changes nothing.",
    empty: "No item is ready.", stamp: (it) => `${it.ready} ${it.done} ${it.running}`,
  },
  scheduled: {
    label: "Scheduled items", hint: "Pushed for a later time, in the order in which they are due.",
    empty: "No item is scheduled.", stamp: (it) => `${it.waiting} ${tick()}`,
  },
  retrying: {
    label: "Retrying items", hint: "An attempt failed, and the next one is due later. In the order in which they are due.",
    empty: "No item is waiting for another attempt.", stamp: (it) => `${it.waiting} ${tick()}`,
  },
  running: {
    label: "Running items", hint: "Items that a worker has fetched. This daemon knows the consumers of its own items only.",
    empty: "No item is running.", stamp: (it) => `${it.running} ${it.done} ${tick()}`,
  },
};

const tick = () => Math.floor(Date.now() / SOON);

export function items(queue, state, server) {
  const { label, hint, empty, stamp } = STATES[state];
  const list = listing({
    label,
    where: path(queue, "items"),
    query: { state },
    rows: (answer) => answer.items,
    row,
    detail: (item, reload) => opened(queue, item, server, reload),
    empty,
    tools: [h("p", { class: "muted" }, hint)],
  });
  return { ...list, update: (it) => list.nudge(stamp(it)) };
}

const attempts = (n, item) => `${n}${item.max_attempts ? ` of ${item.max_attempts}` : ""}`;

// What a row says at its end.
function about(item, payload) {
  const spent = attempts(item.attempts, item);
  return {
    ready: () => [
      item.attempt > 1 && `attempt ${attempts(item.attempt, item)}`,
      item.enqueued_at && moment(item.enqueued_at),
      bytes(item.bytes ?? payload.length),
    ],
    scheduled: () => [`due ${until(item.due)}`, bytes(item.bytes ?? payload.length)],
    retrying: () => [item.attempts != null && `attempt ${spent} failed`, `due ${until(item.due)}`],
    running: () => [item.attempt && `attempt ${attempts(item.attempt, item)}`, worker(item), ran(item)],
  }[item.state]();
}

function worker({ handled_by: by, lease }) {
  if (by) return `consumer #${by.consumer}`;
  return lease.process ? `process ${lease.process}` : `session ${lease.session.slice(0, 8)}…`;
}

function ran({ handled_by: by, lease }) {
  if (by) return `for ${roughly(by.for_seconds)}`;
  return lease.expires_in == null ? "lease expired" : `lease extended ${roughly(lease.extended_age)} ago`;
}

// The key of an item in a keyed queue, in a row.
export const keyOf = ({ key, key_base64: encoded }) => (key ?? encoded) && `key ${visible(key ?? encoded)}`;

function row(item) {
  const payload = decode(item) ?? new Uint8Array();
  const failed = item.state === "retrying" && item.reason;
  const text = item.unreadable ?? (failed ? item.reason.split("\n", 1)[0] : firstLine(payload));
  return [
    h("code", { class: "id" }, item.id),
    h("span", { class: `preview${failed || item.unreadable ? " bad" : ""}` }, visible(text) || h("i", null, "empty")),
    h("span", { class: "meta" }, [keyOf(item), ...about(item, payload)].filter(Boolean).join(" · "), progressInRow(item)),
  ];
}

// What such an item opens to.
export function opened(queue, item, server, reload) {
  const box = h("div");
  const progress = item.state === "running" && followed(queue, item);
  const draw = (it) => {
    if (it.unreadable) return box.replaceChildren(h("p", { class: "notice bad" }, visible(it.unreadable)));
    const payload = decode(it) ?? new Uint8Array();
    const total = it.bytes ?? payload.length;
    const whole = async () => draw({ ...it, ...(await get(path(queue, "items", it.id))) });
    const more = total > payload.length ? whole : null;
    box.replaceChildren(...[progress, timeline(it), facts(it, waits(it)),
      payloadView(payload, { name: `${it.id}.bin`, total, whole: more }), buttons(queue, it, server, reload)].filter(Boolean));
  };
  draw(item);
  // A list says what items are; why one waits is looked up for it alone.
  get(path(queue, "items", item.id)).then(({ why }) => why && draw({ ...item, why }), () => {});
  return box;
}

// A running item can be cancelled; any other is made ready or deleted.
function buttons(queue, { id, state }, server, reload) {
  if (server.read_only) return null;
  const one = path(queue, "items", id);
  if (state === "running") return h("div", { class: "buttons" }, cancellation(one, id, reload));
  const requeue = state !== "ready" && action("Requeue now…", async () => {
    const body = [h("p", null, "It becomes ready now, at its own place in the queue, and is handled as soon as a consumer is free.")];
    if (!(await ask({ title: "Requeue this item now?", body, confirm: "Requeue" }))) return;
    await call("POST", `${one}/requeue`, {});
    toast(`${id} is ready now.`);
    await reload();
  }, { class: "primary" });
  return h("div", { class: "buttons" }, requeue, deletion(one, id, "Delete this item?", reload));
}

// A button that deletes an item, or a dead letter, for good.
function cancellation(one, id, reload) {
  return action("Cancel…", async () => {
    const body = [h("p", null, "The item ", h("code", null, id), " ends, and leaves no dead letter. Its handler is stopped.")];
    if (!(await ask({ title: "Cancel this item?", body, confirm: "Cancel the item", danger: true }))) return;
    await call("POST", `${one}/cancel`, {});
    toast(`${id} is cancelled.`);
    await reload();
  }, { class: "danger" });
}

export function deletion(where, id, title, reload) {
  return action("Delete…", async () => {
    const body = [h("p", null, "The item ", h("code", null, id), " and its payload are deleted for good.")];
    if (!(await ask({ title, body, confirm: "Delete", danger: true }))) return;
    await call("DELETE", where);
    toast(`${id} is deleted.`);
    await reload();
  }, { class: "danger" });
}

// What an item waits for, or who has it.
function waits(it) {
  const { lease, handled_by: by } = it;
  return [
    ["Waits", it.why],
    ["Attempts so far", it.state === "retrying" || it.state === "dead" ? attempts(it.attempts, it) : null],
    ["Crashes", it.crashes > 0 ? String(it.crashes) : null],
    ["Consumer", by && `#${by.consumer} of this daemon`],
    ["Process", lease?.process ? String(lease.process) : null],
    ["Lease", lease && `extended ${roughly(lease.extended_age)} ago, ${lease.expires_in == null ? "expired" : `${roughly(lease.expires_in)} left`}`],
    ["Session", lease?.session],
  ];
}

// What an item has in addition to its payload.
export function facts(it, more = []) {
  const all = [
    ["Id", it.id],
    ...more,
    [it.state === "running" ? "Attempt" : "Next attempt", it.attempt > 1 ? String(it.attempt) : null],
    ["Expires", it.expires_at ? moment(it.expires_at) : null],
    ["Content type", it.content_type],
    ["Trace parent", it.trace_parent],
    ["Key", it.key === "" ? "empty" : it.key ?? (it.key_base64 && `${it.key_base64} (base 64)`)],
    ["Unique key", it.unique ?? (it.unique_base64 && `${it.unique_base64} (base 64)`)],
    ...Object.entries(it.attributes ?? {}).map(([name, value]) => [`Attribute ${visible(name)}`, value]),
  ].filter(([, value]) => value != null && value !== "");
  return h("dl", { class: "facts" }, all.map(([name, value]) =>
    h("div", null, h("dt", null, name), h("dd", null, value instanceof Node ? value : visible(String(value))))));
}
