// Queues of the database on which this daemon does not work: what was pushed to a wrong name is among them.

import { get } from "./api.js";
import { h, keyed, text } from "./dom.js";
import { count, plural } from "./format.js";
import { queueLink } from "./queue-parts.js";

const LOOKED = 200; // the most queues that a look asks for
const NAMED = 5; // of those, in the sentence
const SHOWN = 50; // rows for a search
const PAUSE = 300; // after the last letter of a search, in ms

// `own()`: the names of the queues of this daemon.
export function otherQueues(own) {
  let timer = null;
  let latest = 0;
  const sentence = h("p", { class: "muted" });
  const search = h("input", { type: "search", maxlength: 80, placeholder: "Find another queue by how its name begins", "aria-label": "Find another queue by how its name begins", hidden: true, oninput: () => {
    clearTimeout(timer);
    timer = setTimeout(find, PAUSE);
  } });
  const body = h("tbody");
  const panel = h("div", { class: "panel", hidden: true }, h("table", null,
    h("caption", { class: "unseen" }, "Other queues of the database"),
    h("thead", null, h("tr", null, h("th", { scope: "col" }, "Queue"), h("th", { scope: "col", class: "number" }, "Ready"))), body));
  const rest = h("p", { class: "muted", hidden: true });
  const element = h("div", { class: "apart", hidden: true }, sentence, search, panel, rest);

  async function ask(parameters) {
    const answer = await get(`queues?${new URLSearchParams({ all: true, ...parameters })}`);
    return { found: answer.queues.filter((it) => !own().has(it.queue)), more: !!answer.next };
  }

  async function look() {
    const seen = await ask({ limit: LOOKED }).catch(() => null);
    if (!seen) return;
    element.hidden = seen.found.length === 0;
    sentence.replaceChildren(...whatElse(seen));
    search.hidden = seen.found.length <= NAMED && !search.value;
  }

  async function find() {
    const mine = (latest += 1);
    const wanted = search.value;
    const seen = wanted ? await ask({ limit: SHOWN, starts_with: wanted }).catch(() => null) : { found: [], more: false };
    // A later search may have been answered before.
    if (mine !== latest) return;
    keyed(body, seen?.found ?? [], nameOf, row);
    panel.hidden = !seen?.found.length;
    if (!seen) {
      rest.hidden = false;
      text(rest, "The daemon did not answer this search.");
      return;
    }
    rest.hidden = !wanted || (seen.found.length > 0 && !seen.more);
    text(rest, seen.more ? `These are the first ${SHOWN}. Go on with the name to see others.` : `No other queue's name begins with “${wanted}”.`);
  }
  return { element, look, close: () => clearTimeout(timer) };
}

// A name that is no text comes in base 64.
const nameOf = (it) => it.queue ?? `base64:${it.queue_base64}`;

// A queue whose name is no text has no page.
const link = (it) => (it.queue === undefined ? h("bdi", null, nameOf(it)) : queueLink(it.queue));

const pause = (it) => (it.paused ? ` (${it.paused.frozen ? "frozen" : "paused"})` : "");

function row(first) {
  const ready = h("td", { class: "number" });
  const said = h("span", { class: "muted" });
  const node = h("tr", null, h("th", { scope: "row" }, link(first), said), ready);
  return { node, update: (it) => (text(ready, count(it.ready)), text(said, pause(it))) };
}

function whatElse({ found, more }) {
  const first = [...found].sort((a, b) => !!b.paused - !!a.paused || b.ready - a.ready).slice(0, NAMED);
  const names = first.flatMap((it, at) => [at ? ", " : "", link(it), ` ${count(it.ready)} ready${pause(it)}`]);
  const least = more ? "More than " : "";
  const left = found.length > NAMED ? ` and ${least.toLowerCase()}${count(found.length - NAMED)} more` : "";
  return [`${least}${plural(found.length, "other queue")} in the database, on which this daemon does not work: `, ...names, left];
}
