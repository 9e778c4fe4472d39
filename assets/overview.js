// All queues: how much there is, how fast it goes.

import { h, keyed, text, toggle } from "./dom.js";
import { compact, count, plural, rate, roughly, visible } from "./format.js";
import { otherQueues } from "./other-queues.js";
import { badges, queueLink } from "./queue-parts.js";
import { tile } from "./ui.js";

const MANY = 8; // queues, from which on a search helps
const EVERY = 30000; // a look at the other queues of the database
const MOST = 200; // rows; a search finds the others

const COLUMNS = [
  ["queue", "Queue", (it) => it.queue, (it) => it.queue],
  ["ready", "Ready", (it) => it.ready ?? 0, (it) => count(it.ready)],
  ["oldest", "Oldest", (it) => it.oldest_age ?? 0, (it) => roughly(it.oldest_age)],
  ["in", "In /s", (it) => it.in_rate ?? 0, (it) => rate(it.in_rate)],
  ["out", "Out /s", (it) => it.out_rate ?? 0, (it) => rate(it.out_rate)],
  ["running", "Running", (it) => it.running ?? 0, (it) => count(it.running)],
  ["waiting", "Waiting", (it) => it.waiting ?? 0, (it) => count(it.waiting)],
  ["dead", "Dead", (it) => it.dead ?? 0, (it) => count(it.dead)],
  ["consumers", "Consumers", (it) => it.consumers, (it) => count(it.consumers)],
];

const HINTS = {
  ready: "Items that can be taken now",
  oldest: "How long the oldest ready item has waited",
  in: "Items a second that came, over the last seconds",
  out: "Items a second that were finished, over the last seconds",
  running: "Items that workers have fetched, of this daemon and of others",
  waiting: "Scheduled and retrying items: they wait for their time",
  dead: "Dead letters: items that failed for good",
  consumers: "Consumers of this daemon",
};

export function overview() {
  const sort = { column: "queue", down: false };
  let snapshot = null;
  const redraw = () => snapshot && update(snapshot);
  const tiles = {
    ready: tile("Ready", HINTS.ready), running: tile("Running", HINTS.running), in: tile("In /s", HINTS.in),
    out: tile("Out /s", HINTS.out), waiting: tile("Waiting", HINTS.waiting), dead: tile("Dead", HINTS.dead),
  };
  const search = h("input", { type: "search", placeholder: "Find a queue", "aria-label": "Find a queue", oninput: redraw });
  const heads = COLUMNS.map(([name, title]) => heading(name, title, sort, redraw));
  const body = h("tbody");
  const empty = h("p", { class: "empty", hidden: true });
  const table = h("table", { class: "cards queues" },
    h("caption", { class: "unseen" }, "Queues of this daemon"), h("thead", null, h("tr", null, heads.map((it) => it.node))), body);
  const rest = h("p", { class: "muted", hidden: true });
  const others = otherQueues(() => new Set(snapshot.queues.map((it) => it.queue)));
  const element = h("div", null,
    h("h1", { class: "unseen" }, "Queues"),
    h("dl", { class: "tiles" }, Object.values(tiles).map((it) => it.node)),
    search, h("div", { class: "panel" }, table, empty), rest, others.element);

  function update(now) {
    if (!snapshot) setTimeout(others.look);
    snapshot = now;
    const { queues } = now;
    const sum = (value) => (queues.length ? queues.reduce((all, it) => all + (value(it) ?? 0), 0) : null);
    tiles.ready.set(compact(sum((it) => it.ready)));
    tiles.running.set(compact(sum((it) => it.running)));
    tiles.in.set(rate(sum((it) => it.in_rate)));
    tiles.out.set(rate(sum((it) => it.out_rate)));
    tiles.waiting.set(compact(sum((it) => it.waiting)));
    tiles.dead.set(compact(sum((it) => it.dead)), sum((it) => it.dead) > 0 ? "bad" : "");
    search.hidden = queues.length < MANY;
    const wanted = search.hidden ? "" : search.value.toLowerCase();
    const shown = sorted(queues.filter((it) => it.queue.toLowerCase().includes(wanted)), sort);
    heads.forEach((it) => it.update());
    keyed(body, shown.slice(0, MOST), (it) => it.queue, row);
    rest.hidden = shown.length <= MOST;
    text(rest, `The first ${MOST} are shown, and ${plural(shown.length - MOST, "queue")} more can be found by name.`);
    table.hidden = shown.length === 0;
    empty.hidden = shown.length > 0;
    text(empty, queues.length ? `No queue's name has “${search.value}” in it.` : "There are no queues yet: the daemon is starting.");
  }

  const timer = setInterval(() => document.hidden || !snapshot || others.look(), EVERY);
  return { title: "Queues", page: "queues", element, update, close: () => (clearInterval(timer), others.close()) };
}

function heading(name, title, sort, redraw) {
  const pick = () => {
    // Numbers are wanted from the highest down.
    sort.down = sort.column === name ? !sort.down : name !== "queue";
    sort.column = name;
    redraw();
  };
  const node = h("th", { scope: "col", class: name === "queue" ? "" : "number" },
    h("button", { type: "button", class: "sort", title: HINTS[name], onclick: pick }, title));
  const update = () =>
    node.setAttribute("aria-sort", sort.column !== name ? "none" : sort.down ? "descending" : "ascending");
  return { node, update };
}

function sorted(queues, { column, down }) {
  const value = COLUMNS.find(([name]) => name === column)[2];
  const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  const up = (a, b) => order(value(a), value(b)) * (down ? -1 : 1) || order(a.queue, b.queue);
  return queues.sort(up);
}

function row(first) {
  const signs = h("span", { class: "badges" });
  const name = h("th", { scope: "row" }, queueLink(first.queue), signs,
    h("span", { class: "sub" }));
  const cells = COLUMNS.slice(1).map(([, title]) => h("td", { class: "number", "data-label": title }));
  const node = h("tr", null, name, cells);
  const update = (queue) => {
    keyed(signs, badges(queue), ([label]) => label, ([label, mood, hint]) => ({
      node: h("span", { class: `badge ${mood}`, title: hint }, label) }));
    text(name.querySelector(".sub"), visible(`${queue.handler} · ${queue.delivery}${queue.kind === "fifo" ? "" : ` · ${queue.kind}`}`));
    COLUMNS.slice(1).forEach(([column, , value, show], at) => {
      text(cells[at], show(queue));
      toggle(cells[at], "bad", column === "dead" && value(queue) > 0);
      toggle(cells[at], "zero", column !== "oldest" && !value(queue));
    });
    toggle(node, "stale", (queue.looked ?? 0) > 15);
    node.title = queue.looked > 15 ? `These figures are ${roughly(queue.looked)} old.` : "";
  };
  return { node, update };
}

