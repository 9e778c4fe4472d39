// Workers of other programs that lease items of a queue over HTTP, as this daemon sees them.

import { h, keyed, text } from "./dom.js";
import { count, plural, roughly, visible } from "./format.js";
import { who } from "./queue-parts.js";

const COLUMNS = ["Worker", "Lease", "Items", "For", "Heartbeat", "Expires"];
const NUMBERS = ["Items", "For", "Heartbeat", "Expires"];

export function workerTable(queue) {
  const body = h("tbody");
  const empty = h("p", { class: "empty" }, "No worker leases items of this queue from this daemon.");
  const more = h("p", { class: "muted", hidden: true });
  const table = h("table", { class: "cards" }, h("caption", { class: "unseen" }, "Workers"),
    h("thead", null, h("tr", null, COLUMNS.map((it) => h("th", { scope: "col", class: NUMBERS.includes(it) ? "number" : "" }, it)))), body);
  const element = h("div", null, h("div", { class: "panel" }, table, empty), more);

  const row = (first) => {
    const cells = COLUMNS.slice(1).map((title) => h("td", { class: NUMBERS.includes(title) ? "number" : "", "data-label": title }));
    const from = [first.address, first.user_agent].filter(Boolean).map(visible).join(" · ");
    const node = h("tr", null, h("th", { scope: "row" }, h("bdi", null, who(first.who)), h("span", { class: "sub" }, h("bdi", null, from))), cells);
    return { node, update: (it) => [
      it.lease ?? "Waits for items", it.items === null ? "–" : count(it.items), roughly(it.for_seconds),
      it.heartbeat_seconds === null ? "–" : `${roughly(it.heartbeat_seconds)} ago`,
      it.expires_in_seconds === null ? "–" : `in ${roughly(it.expires_in_seconds)}`,
    ].forEach((value, at) => text(cells[at], value)) };
  };

  function update(snapshot) {
    const shown = snapshot.workers.filter((it) => it.queue === queue);
    const of = snapshot.queues.find((it) => it.queue === queue)?.workers ?? { waiting: 0, working: 0 };
    // A waiting worker has no lease to tell it by, only its place.
    keyed(body, shown.map((it, at) => ({ ...it, key: it.lease ?? `${at} ${it.address} ${it.user_agent}` })), (it) => it.key, row);
    table.hidden = shown.length === 0;
    empty.hidden = shown.length > 0;
    const rest = of.waiting + of.working - shown.length;
    more.hidden = rest <= 0;
    text(more, `And ${plural(rest, "more worker", "more workers")}.`);
  }
  return { element, update };
}
