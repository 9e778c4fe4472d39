// A list that is read by pages and whose rows open: items of a state, dead letters.

import { get } from "./api.js";
import { h, keyed, text, unique } from "./dom.js";
import { complain } from "./ui.js";

const PAGE = 25;
const READ_ON = 20; // pages without a row that are passed over at once: a page reads a bounded part of what is in other states
const EAGER = 2000; // the shortest time between two reads of a watched first page, in ms

// `where`: the path; `query`: parameters in addition to those of the page, read each time; `place`: the parameter that names the page before; `rows(answer)`; `row(entry, open)` returns cells; `detail(entry)` a promise of the opened part; `empty` a text.
export function listing({ label, where, query = {}, place: parameter = "after", rows, heads, row, detail, empty, tools = [] }) {
  const state = { after: [], next: null, open: new Map(), stamp: null, read: 0, busy: false };
  const body = h("div", { class: "entries", role: "list", "aria-label": label });
  const nothing = h("p", { class: "empty", hidden: true }, empty);
  const back = h("button", { type: "button", onclick: () => (state.after.pop(), load()) }, "Back");
  const onward = h("button", { type: "button", onclick: () => (state.after.push(state.next), load()) }, "Next");
  const place = h("span", { class: "muted" });
  const again = h("button", { type: "button", onclick: () => load() }, "Refresh");
  const element = h("div", null,
    h("div", { class: "bar" }, tools, h("span", { class: "space" }), again),
    h("div", { class: "panel" }, heads, body, nothing),
    h("div", { class: "bar pager" }, back, place, onward));

  async function load() {
    if (state.busy) return;
    state.busy = true;
    state.read = Date.now();
    try {
      const { found, next } = await read(state.after.at(-1));
      state.next = next;
      // The page before ends where there is nothing any more.
      if (found.length === 0 && !next && state.after.length > 0) {
        state.after.pop();
        state.busy = false;
        return load();
      }
      keyed(body, found, (it) => it.id, entry);
      nothing.hidden = found.length > 0;
      text(nothing, next ? "None in what was read so far. Next reads on." : empty);
      back.disabled = state.after.length === 0;
      onward.disabled = !state.next;
      back.parentNode.hidden = back.disabled && onward.disabled;
      text(place, `Page ${state.after.length + 1}`);
    } catch (error) {
      complain(error);
    } finally {
      state.busy = false;
    }
  }

  // The first page after this one that has rows, or the last that was read.
  async function read(after) {
    for (let pages = 0; ; pages += 1) {
      const parameters = new URLSearchParams({ ...query, limit: PAGE, ...(after ? { [parameter]: after } : {}) });
      const answer = await get(`${where}?${parameters}`);
      const found = rows(answer);
      if (found.length > 0 || !answer.next || pages === READ_ON) return { found, next: answer.next };
      after = answer.next;
    }
  }

  function entry(first) {
    const id = unique("entry");
    const inside = h("div", { class: "detail", id, hidden: true });
    const button = h("button", { type: "button", class: "opener", "aria-expanded": "false", "aria-controls": id });
    const node = h("div", { class: "entry", role: "listitem" }, button, inside);
    let now = first;
    button.onclick = async () => {
      const opens = inside.hidden;
      inside.hidden = !opens;
      button.setAttribute("aria-expanded", opens);
      if (!opens) return state.open.delete(now.id);
      state.open.set(now.id, true);
      inside.replaceChildren(h("p", { class: "muted" }, "Loading…"));
      try {
        inside.replaceChildren(await detail(now, load));
      } catch (error) {
        inside.replaceChildren(h("p", { class: "notice bad" }, `${error.message}. ${error.fix ?? ""}`));
      }
    };
    return { node, update: (it) => {
      now = it;
      button.replaceChildren(...row(it));
    } };
  }

  // Something changed in the queue; `stamp` tells whether it concerns this list. Who reads in it is not disturbed.
  function nudge(stamp) {
    const due = state.stamp !== stamp && Date.now() - state.read >= EAGER;
    if (!due || state.after.length > 0 || body.querySelector(":scope .detail:not([hidden])")) return;
    state.stamp = stamp;
    load();
  }

  // From the first page.
  function restart() {
    state.after = [];
    return load();
  }
  return { element, load, nudge, restart };
}
