// One queue: its figures, its last hour, its items by what they are doing, ended items, its consumers and workers.

import { call, get, path } from "./api.js";
import { chart } from "./chart.js";
import { consumerTable } from "./consumers.js";
import { dead } from "./dead.js";
import { h, keyed, text } from "./dom.js";
import { ended, hasHistory } from "./ended.js";
import { find } from "./find.js";
import { compact, moment, rate, roughly, since, visible } from "./format.js";
import { items } from "./items.js";
import { limits } from "./limits.js";
import { badges, queueHref } from "./queue-parts.js";
import { schedules } from "./schedules.js";
import { action, ask, tabs, tile, toast } from "./ui.js";
import { workerTable } from "./workers.js";

const EVERY = 10000; // a sample of the hour

// A name, a hint, the figure, its mood, and the part with the items.
const TILES = [
  ["Ready", "Items that can be taken now", (it) => compact(it.ready), null, "ready"],
  ["Oldest", "How long the oldest ready item has waited", (it) => roughly(it.oldest_age)],
  ["In /s", "Items a second that came", (it) => rate(it.in_rate)],
  ["Out /s", "Items a second that were finished", (it) => rate(it.out_rate)],
  ["Running", "Items that workers have fetched, of this daemon and of others", (it) => compact(it.running), null, "running"],
  ["Waiting", "Scheduled and retrying items: they wait for their time", (it) => compact(it.waiting), null, "scheduled"],
  ["Dead", "Dead letters: items that failed for good", (it) => compact(it.dead), (it) => (it.dead > 0 ? "bad" : ""), "dead"],
  ["Done", "Items finished since the queue was made", (it) => compact(it.done)],
];

// What can be seen of a queue: its items by what they are doing, ended items, its consumers, and workers of other programs.
const PARTS = [
  ["ready", "Ready"], ["scheduled", "Scheduled"], ["retrying", "Retrying"], ["running", "Running"], ["dead", "Dead"], ["ended", "Ended"], ["consumers", "Consumers"], ["workers", "Workers"], ["limits", "Limits"], ["schedules", "Schedules"],
];

export function queuePage(name, part, server) {
  const signs = h("span", { class: "badges" });
  const kind = h("p", { class: "muted" });
  const pausing = h("div", { class: "buttons" });
  const paused = h("p", { class: "notice warn", hidden: true });
  const broken = h("p", { class: "notice bad", hidden: true });
  const tiles = TILES.map(([title, hint, , , of]) => tile(title, hint, of && queueHref(name, of)));
  const charts = hour();
  // On a phone they would push the items far down.
  const folded = h("details", { class: "hour", open: !matchMedia("(max-width: 760px)").matches }, h("summary", null, "The last hour"), charts.element);
  const panel = h("section", { class: "part" });
  const gone = h("p", { class: "notice warn", hidden: true }, "This daemon does not process a queue of this name.");
  const body = h("div", null, broken, paused,
    h("dl", { class: "tiles" }, tiles.map((it) => it.node)), folded);
  const parts = tabs("Of this queue", PARTS, part,
    (chosen) => location.replace(queueHref(name, chosen)));
  const element = h("div", null,
    h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Queues"), " / "),
    h("div", { class: "head" }, h("h1", null, h("bdi", null, visible(name)), " ", signs), pausing), kind, gone, body, find(name, server, () => shown?.load?.()), parts.node, panel);
  let shown = null;
  let last = null;
  let state = "";
  let scheduled = part === "schedules"; // whether the queue has schedules
  let kept = part === "ended"; // whether it has a history

  function show(chosen) {
    shown?.close?.();
    parts.show(chosen);
    const others = { dead: () => dead(name, server), ended: () => ended(name), consumers: () => of(consumerTable(name)), workers: () => of(workerTable(name)), limits: () => limits(name, server), schedules: () => schedules(name, server) };
    shown = others[chosen]?.() ?? items(name, chosen, server);
    panel.replaceChildren(shown.element);
    shown.load?.();
    if (last) update(last);
  }

  function update(snapshot) {
    last = snapshot;
    const it = snapshot.queues.find((queue) => queue.queue === name);
    gone.hidden = it !== undefined;
    body.hidden = pausing.hidden = it === undefined;
    if (it === undefined) return;
    keyed(signs, badges(it), ([label]) => label, ([label, mood, hint]) => ({ node: h("span", { class: `badge ${mood}`, title: hint }, label) }));
    text(kind, visible(`Handler ${it.handler}, delivery ${it.delivery}, kind ${it.kind}`));
    TILES.forEach(([, , value, mood], at) => tiles[at].set(value(it), mood?.(it)));
    text(parts.button("limits"), it.blocked_keys > 0 ? `Limits (${compact(it.blocked_keys)} blocked)` : "Limits");
    // Only a keyed queue has rules.
    parts.button("limits").hidden = parts.button("limits").disabled = it.kind !== "keyed";
    parts.button("schedules").hidden = parts.button("schedules").disabled = !scheduled;
    parts.button("ended").hidden = parts.button("ended").disabled = !kept;
    text(parts.button("ready"), it.ready > 0 ? `Ready (${compact(it.ready)})` : "Ready");
    text(parts.button("running"), it.running > 0 ? `Running (${compact(it.running)})` : "Running");
    text(parts.button("dead"), it.dead > 0 ? `Dead (${compact(it.dead)})` : "Dead");
    const workers = it.workers.waiting + it.workers.working;
    text(parts.button("workers"), workers > 0 ? `Workers (${compact(workers)})` : "Workers");
    text(parts.button("consumers"), `Consumers (${it.consumers})`);
    paused.hidden = !it.paused && !it.paused_locally;
    text(paused, whyPaused(it));
    broken.hidden = !it.unavailable && !it.fetch_error;
    text(broken, it.unavailable ? whyBroken(it.unavailable) : visible(`Fetches fail: ${it.fetch_error}`));
    const now = `${it.paused !== null} ${it.paused_locally} ${server.read_only}`;
    if (now !== state) pausing.replaceChildren(...(server.read_only ? [] : pauseButtons(name, it)));
    state = now;
    shown?.update?.(shown.whole ? snapshot : it);
  }

  const samples = async () => {
    const answer = await get(path(name, "history")).catch(() => null);
    if (answer) charts.update(answer.samples);
    const found = await get(`${path(name, "schedules")}?limit=1`).catch(() => null);
    scheduled ||= found?.schedules.length > 0;
    kept ||= await hasHistory(name).catch(() => false);
    if (last) update(last);
  };
  const timer = setInterval(() => document.hidden || samples(), EVERY);
  samples();
  show(part);
  return { title: visible(name), page: "queues", element, update, part: show, close: () => clearInterval(timer) };
}

const of = (table) => ({ ...table, whole: true });

function hour() {
  const waiting = chart("Items", [
    { name: "Ready", value: (it) => it.ready, line: 1 },
    { name: "Running", value: (it) => it.running, line: 2 },
    { name: "Waiting", value: (it) => it.waiting, line: 3 },
  ], compact, 2);
  const speed = chart("Items a second", [
    { name: "In", value: (it) => it.in_rate, line: 1 },
    { name: "Out", value: (it) => it.out_rate, line: 2 },
  ], rate, 1);
  const letters = chart("Dead letters", [{ name: "Dead", value: (it) => it.dead, line: 4 }], compact, 2);
  const all = [waiting, speed, letters];
  return { element: h("div", { class: "charts" }, all.map((it) => it.node)), update: (samples) => all.forEach((it) => it.update(samples)) };
}

function whyPaused({ paused, paused_locally: local }) {
  const parts = [];
  if (paused) {
    const reason = paused.reason ? `: ${visible(paused.reason)}` : ".";
    const frozen = paused.frozen ? " Nothing moves in it, neither delayed items nor leases that ran out." : "";
    parts.push(`Paused for all daemons since ${moment(paused.since)} (${since(paused.since)})${reason}${frozen}`);
  }
  if (local) parts.push("Paused for this daemon alone, until it is resumed or the daemon restarts.");
  return parts.join(" ");
}

function whyBroken({ since: began, reason, tries }) {
  return `The handler cannot work in this daemon since ${moment(began)} (${since(began)}): ${visible(reason)}. Items go back without an attempt; one at a time is tried until it can (tries so far: ${compact(tries)}).`;
}

function pauseButtons(name, { paused, paused_locally: local }) {
  const where = path(name, "pause");
  const resume = (label, query) => action(label, async () => {
    await call("DELETE", `${where}${query}`);
    toast("Resumed.");
  }, { class: "primary" });
  return [
    !paused && action("Pause…", () => pause(name, local)),
    local && resume("Resume locally", "?local=true"),
    paused && resume("Resume", ""),
  ].filter(Boolean);
}

async function pause(name, local) {
  const reason = h("input", { type: "text", maxlength: 200, id: "pause-reason", autocomplete: "off" });
  const choice = (value, label, hint, checked) => h("label", { class: "choice" },
    h("input", { type: "radio", name: "scope", value, checked }), h("span", null, h("b", null, label), h("br"), hint));
  const every = choice("all", "All daemons", "Kept in the database until somebody resumes it.", true);
  const alone = choice("local", "This daemon only", "Until it is resumed, or this daemon restarts.", false);
  const body = [
    h("p", null, "No more items are fetched. Running items are finished, and pushes go on."),
    h("fieldset", null, h("legend", null, "For whom"), every, local ? null : alone),
    h("label", { for: "pause-reason" }, "Reason, for others who see it"), reason,
  ];
  const read = () => ({ local: alone.querySelector("input").checked, reason: reason.value.trim() });
  const order = await ask({ title: `Pause ${visible(name)}?`, body, confirm: "Pause", read });
  if (!order) return;
  await call("PUT", path(name, "pause"), order);
  toast("Paused.");
}
