// The audit trail: who changed a queue or the daemon, the newest first.

import { h } from "./dom.js";
import { moment, visible } from "./format.js";
import { listing } from "./listing.js";
import { queueLink, who } from "./queue-parts.js";

const queue = (it) => it.queue ?? (it.queue_base64 && `${it.queue_base64} (base 64)`);

export function audit() {
  const list = listing({
    label: "Audit trail",
    where: "audit",
    rows: (answer) => answer.records,
    row,
    detail: opened,
    empty: "Nothing has been changed yet.",
  });
  const element = h("div", null, h("h1", null, "Audit"),
    h("p", { class: "muted" }, "Who changed a queue or the daemon, other than by pushing and handling items."), list.element);
  list.load();
  return { title: "Audit", page: "audit", element, update: () => {} };
}

function row(it) {
  return [
    h("code", { class: "id" }, visible(it.action)),
    h("span", { class: "preview" }, h("bdi", null, visible(queue(it) ?? ""))),
    h("span", { class: "meta" }, h("bdi", null, who(it.who)), ` · ${moment(it.at)}`),
  ];
}

async function opened(it) {
  const shown = (value) => visible(typeof value === "string" ? value : Array.isArray(value) ? value.join(", ") : JSON.stringify(value));
  const facts = [
    ["When", it.at],
    ["Who", who(it.who)],
    ["Address", it.address && visible(it.address)],
    ["Queue", it.queue === undefined ? queue(it) : queueLink(it.queue)],
    ...Object.entries(it.details ?? {}).map(([name, value]) => [visible(name), shown(value)]),
  ].filter(([, value]) => value);
  return h("dl", { class: "facts" }, facts.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
}
