// Items that have ended, of a queue that keeps a history: how, when and why.

import { get, path } from "./api.js";
import { h } from "./dom.js";
import { bytes, moment, plural, roughly, visible } from "./format.js";
import { facts, keyOf } from "./items.js";
import { listing } from "./listing.js";
import { decode, resultView } from "./payload.js";
import { timeline } from "./timeline.js";

const SOON = 10000; // the shortest time between two reads of a watched list, in ms
const OUTCOMES = [["", "Any outcome"], ["done", "Done"], ["dead", "Dead"], ["cancelled", "Cancelled"], ["expired", "Expired"], ["taken", "Taken"]];

// Whether the queue has a history: a time for which items are kept, or items that are kept still.
export async function hasHistory(queue) {
  const { items, kept_seconds: kept } = await get(`${path(queue, "ended")}?limit=1`);
  return kept !== null || items.length > 0;
}

export function ended(queue) {
  const query = {};
  const list = listing({
    label: "Ended items",
    where: path(queue, "ended"),
    query,
    // A dead letter that was retried ends twice.
    rows: ({ items }) => items.map((item) => ({ item, id: `${item.id} ${item.ended_at} ${item.outcome}` })),
    row: ({ item }) => row(item),
    detail: ({ item }) => endedItem(queue, item),
    empty: "No item of the history matches.",
    tools: [h("p", { class: "muted" }, "The last to end first. Payloads are not kept.")],
  });
  const element = h("div", null, filters(query, list.restart), list.element);
  return { ...list, element, update: () => list.nudge(Math.floor(Date.now() / SOON)) };
}

function filters(query, restart) {
  const field = (name, label) => h("input", { type: "text", name, placeholder: label, "aria-label": label, autocomplete: "off", spellcheck: "false" });
  const outcome = h("select", { name: "outcome", "aria-label": "Outcome" }, OUTCOMES.map(([value, label]) => h("option", { value }, label)));
  const inputs = [outcome, field("attribute", "Attribute, as in customer=ann"), field("schedule", "Schedule"), field("since", "Since, as in 2h")];
  const apply = () => {
    for (const { name, value } of inputs) {
      if (value.trim() === "") delete query[name];
      else query[name] = value.trim();
    }
    restart();
  };
  outcome.addEventListener("change", apply);
  return h("form", { class: "bar filters", "aria-label": "Filters", onsubmit: (event) => (event.preventDefault(), apply()) },
    inputs, h("button", { type: "submit" }, "Filter"));
}

const took = ({ started_at: from, ended_at: to }) => from && `took ${roughly(Math.max(0, new Date(to) - new Date(from)) / 1000)}`;

function row(item) {
  return [
    h("code", { class: "id" }, item.id),
    h("span", { class: `preview${item.outcome === "dead" ? " bad" : ""}` }, `${item.outcome}${item.reason ? `: ${visible(item.reason.split("\n", 1)[0])}` : ""}`),
    h("span", { class: "meta" }, [keyOf(item), plural(item.attempts, "attempt"), took(item), resulted(item), moment(item.ended_at)].filter(Boolean).join(" · ")),
  ];
}

const resulted = ({ result_bytes: length }) => length != null && `result of ${bytes(length)}`;

// What is kept of an ended item. A list does not have its result.
export async function endedItem(queue, item) {
  const lacks = item.result_bytes != null && !decode(item, "result");
  const result = decode(lacks ? await get(path(queue, "items", item.id)) : item, "result");
  const note = item.result_too_long ? "too long, and not kept" : null;
  return h("div", null, timeline(item), facts(item, [["Result", note]]), result && resultView(result, `${item.id}.result`));
}
