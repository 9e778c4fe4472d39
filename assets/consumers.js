// The consumers of this daemon and what they are at.

import { h, keyed, text } from "./dom.js";
import { count, plural, roughly } from "./format.js";
import { CONSUMER_STATES, queueLink } from "./queue-parts.js";

// The table alone; with `queue`, of that queue only.
export function consumerTable(queue = null) {
  const body = h("tbody");
  const counts = h("p", { class: "consumer-states" });
  const empty = h("p", { class: "empty", hidden: true }, queue === null
    ? "No consumers run. A daemon that starts or stops has none; otherwise its log says why."
    : "This daemon runs no consumers of this queue.");
  const heads = ["Consumer", queue === null && "Queue", "State", "For", "Items per take", "Restarts"].filter(Boolean);
  const numbers = ["For", "Items per take", "Restarts"];
  const table = h("table", { class: "cards" }, h("caption", { class: "unseen" }, "Consumers"),
    h("thead", null, h("tr", null, heads.map((it) => h("th", { scope: "col", class: numbers.includes(it) ? "number" : "" }, it)))), body);
  const element = h("div", null, counts, h("div", { class: "panel" }, table, empty));

  const row = (first) => {
    const state = h("td", { "data-label": "State" });
    const lasted = h("td", { class: "number", "data-label": "For" });
    const restarts = h("td", { class: "number", "data-label": "Restarts" });
    const node = h("tr", null, h("th", { scope: "row" }, `#${first.id}`),
      queue === null && h("td", { "data-label": "Queue" }, queueLink(first.queue)),
      state, lasted, h("td", { class: "number", "data-label": "Items per take" }, count(first.k)), restarts);
    return { node, update: (it) => {
      if (state.dataset.state !== it.state) {
        state.dataset.state = it.state;
        const [name, hint] = CONSUMER_STATES[it.state] ?? [it.state, ""];
        state.replaceChildren(h("span", { class: `consumer-state ${it.state}`, title: hint }, name));
      }
      text(lasted, roughly(it.for_seconds));
      text(restarts, count(it.restarts));
      restarts.classList.toggle("bad", it.restarts > 0);
    } };
  };

  function update(snapshot) {
    const all = snapshot.consumers.filter((it) => queue === null || it.queue === queue);
    keyed(body, all, (it) => `${it.id} ${it.queue} ${it.k}`, row);
    table.hidden = all.length === 0;
    empty.hidden = all.length > 0;
    const parts = Object.entries(CONSUMER_STATES).map(([name, [label]]) => [label.toLowerCase(), all.filter((it) => it.state === name).length]);
    text(counts, all.length ? `${plural(all.length, "consumer")}: ${parts.filter(([, n]) => n).map(([label, n]) => `${count(n)} ${label}`).join(", ")}` : "");
  }
  return { element, update };
}

export function consumers() {
  const table = consumerTable();
  return { title: "Consumers", page: "consumers", element: h("div", null, h("h1", null, "Consumers"), table.element), update: table.update };
}
