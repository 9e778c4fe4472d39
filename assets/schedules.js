// The schedules of a queue: when they fire and how they stand, pausing and firing them, and what became of their times.

import { call, get, path } from "./api.js";
import { h } from "./dom.js";
import { count, moment, momentIn, plural, since, until, visible } from "./format.js";
import { listing } from "./listing.js";
import { decode, payloadView } from "./payload.js";
import { action, ask, complain, toast } from "./ui.js";

const EVERY = 5000; // the shortest time between two reads of a watched list, in ms
const RECORDS = 20; // a page of the history

const STATES = {
  active: ["", ""],
  overdue: ["Overdue", "It has been due for more than a minute, and no daemon has fired it"],
  paused: ["Paused", "It does not fire until it is resumed"],
  waiting: ["Waiting", "It waits for the end of its last item"],
  unreadable: ["Unreadable", "It was stored by a later version of kvqueue"],
};

const MISSED = { skip: "do not fire", once: "the newest fires", all: "all fire" };
const OVERLAP = { allow: "the next item is pushed", skip: "the next time is skipped", queue: "the next time waits" };

const REASONS = {
  overlap: "the last item had not ended",
  paused: "the schedule was paused",
  redefined: "the calendar was changed",
  policy: "it is not to fire later",
  window: "it was older than the window",
  maximum: "more recent ones were as many as the maximum",
};
const OUTCOMES = { fired: "Fired", fired_by_hand: "Fired by hand", skipped: "Skipped", missed: "Missed", unknown: "Recorded by a later version of kvqueue" };

export function schedules(queue, server) {
  const list = listing({
    label: "Schedules",
    where: path(queue, "schedules"),
    rows: (answer) => answer.schedules.map((it) => ({ ...it, id: it.name })),
    row,
    detail: (it, reload) => opened(queue, it.name, server, reload),
    empty: "There are no schedules. `kvqueue schedule add` makes one.",
    tools: [h("p", { class: "muted" }, "A schedule pushes an item at each of its times, once for all daemons.")],
  });
  return { ...list, update: () => list.nudge(Math.floor(Date.now() / EVERY)) };
}

function row(it) {
  const [label, hint] = STATES[it.state];
  const last = it.last && `last ${since(it.last.time)} ago`;
  return [
    h("bdi", { class: "title" }, visible(it.name)),
    h("span", { class: "preview" }, visible(it.description ?? "")),
    h("span", { class: "meta" }, label && h("span", { class: "badge warn", title: hint }, label), label && " ",
      [it.next && `next ${until(it.next.fires_at)}`, last].filter(Boolean).join(" · ")),
  ];
}

// What a schedule opens to. It is drawn again when something was done.
async function opened(queue, name, server, reload) {
  const box = h("div");
  const where = path(queue, "schedules", name);
  const draw = async () => {
    const it = await get(where);
    const again = () => Promise.all([reload(), draw()]);
    const buttons = server.read_only || !it.definition ? [] : [actions(where, it, again)];
    box.replaceChildren(facts(it), ...shownPayload(it), ...buttons, await history(where));
  };
  await draw();
  return box;
}

function facts(it) {
  const of = it.definition ?? {};
  const later = (it.times ?? []).filter(({ time }) => time !== it.next?.time);
  const all = [
    ["Calendar", of.cron ?? (of.every && `every ${of.every}`)],
    ["Time zone", of.zone],
    ["Next", it.next && `${momentIn(it.next.fires_at, of.zone)} (${until(it.next.fires_at)})`],
    [it.next ? "Then" : "If resumed", later.map((time) => momentIn(time.fires_at, of.zone)).join(", ")],
    ["Paused since", it.paused_since && moment(it.paused_since)],
    ["Waits since", it.waiting_time && moment(it.waiting_time)],
    ["Last", it.last && h("span", null, `${moment(it.last.time)}, item `, h("code", { class: "id" }, it.last.item))],
    ["Items", count(it.occurrences)],
    ["Missed times", of.missed && `${MISSED[of.missed]}${of.missed_window ? `, up to ${of.missed_window} old` : ""}`],
    ["Overlap", of.overlap && OVERLAP[of.overlap]],
    ["Jitter", of.jitter && `less than ${of.jitter}`],
    ["Key", of.key ?? (of.key_base64 && `${of.key_base64} (base 64)`)],
    ["Content type", of.content_type],
    ["Belongs to", it.owner],
    ...Object.entries(of.attributes ?? {}).map(([key, value]) => [`Attribute ${visible(key)}`, value]),
  ].filter(([, value]) => value != null && value !== "");
  return h("dl", { class: "facts" }, all.map(([label, value]) =>
    h("div", null, h("dt", null, label), h("dd", null, value instanceof Node ? value : visible(String(value))))));
}

function shownPayload({ name, definition: of }) {
  if (!of) return [];
  const payload = decode(of.payload_json === undefined ? of : { payload: JSON.stringify(of.payload_json) });
  return [payload ? payloadView(payload, { name: `${name}.bin` }) : h("p", { class: "note" }, "The payload is empty.")];
}

function actions(where, { name, paused_since: paused }, again) {
  const change = (label, order, said) => action(label, async () => {
    await call("POST", `${where}/${order}`);
    toast(said);
    await again();
  });
  return h("div", { class: "buttons" },
    paused ? change("Resume", "resume", `${visible(name)} goes on.`) : change("Pause", "pause", `${visible(name)} is paused.`),
    action("Fire now…", () => fire(where, name, again)));
}

async function fire(where, name, again) {
  const body = [h("p", null, "An item of ", h("bdi", null, visible(name)), " is pushed now. The schedule goes on as if nothing had happened.")];
  if (!(await ask({ title: "Fire this schedule now?", body, confirm: "Fire" }))) return;
  const { item } = await call("POST", `${where}/fire`);
  toast(item ? `The item ${item} is pushed.` : "The item is pushed.");
  await again();
}

// What became of the times, by pages that are added below.
async function history(where) {
  const body = h("tbody");
  const more = h("button", { type: "button", hidden: true }, "Older records");
  const read = async (after) => {
    const { records, next } = await get(`${where}/history?limit=${RECORDS}${after === undefined ? "" : `&after=${after}`}`);
    body.append(...records.map(record));
    more.hidden = next === null;
    more.onclick = () => read(next).catch(complain);
    return records.length;
  };
  const found = await read();
  if (found === 0) return h("p", { class: "note" }, "It has not fired yet.");
  const heads = ["Time", "Outcome", "Item", "Recorded"];
  return h("details", { open: true }, h("summary", null, "What became of its times"),
    h("table", { class: "cards" }, h("thead", null, h("tr", null, heads.map((it) => h("th", { scope: "col" }, it)))), body), more);
}

function record(it) {
  const times = it.from === it.to ? moment(it.from) : `${moment(it.from)} to ${moment(it.to)}, ${plural(it.count, "time")}${it.exact ? "" : " or more"}`;
  const outcome = it.reason ? `${OUTCOMES[it.outcome]}: ${REASONS[it.reason]}` : OUTCOMES[it.outcome];
  return h("tr", null, h("th", { scope: "row" }, times), h("td", { "data-label": "Outcome" }, outcome),
    h("td", { "data-label": "Item" }, it.item ? h("code", { class: "id" }, it.item) : "–"), h("td", { "data-label": "Recorded" }, moment(it.at)));
}
