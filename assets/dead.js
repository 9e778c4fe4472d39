// Dead letters: why they died, and what can be done with them.

import { call, get, path } from "./api.js";
import { h, unique } from "./dom.js";
import { moment, plural, visible, visibleLines } from "./format.js";
import { deletion, facts, keyOf } from "./items.js";
import { listing } from "./listing.js";
import { decode, payloadView, readable } from "./payload.js";
import { timeline } from "./timeline.js";
import { action, ask, toast } from "./ui.js";

export function dead(queue, server) {
  let known = null;
  const all = server.read_only ? [] : [
    action("Requeue all", () => requeueAll(queue, known, list.load)),
    action("Purge all…", () => purge(queue, known, list.load), { class: "danger" }),
  ];
  const list = listing({
    label: "Dead letters",
    where: path(queue, "dead"),
    rows: (answer) => answer.letters ?? answer.items,
    row,
    detail: (letter, reload) => openedLetter(queue, letter, server, reload),
    empty: "There are no dead letters.",
    tools: all,
  });
  return { ...list, update: (it) => {
    known = it.dead;
    all.forEach((button) => (button.disabled = !it.dead));
    list.nudge(it.dead);
  } };
}

function row(letter) {
  return [
    h("code", { class: "id" }, letter.id),
    h("span", { class: "preview bad" }, visible(letter.reason.split("\n", 1)[0]) || h("i", null, "no reason was given")),
    h("span", { class: "meta" }, [keyOf(letter), plural(letter.attempts, "attempt"), moment(letter.died_at)].filter(Boolean).join(" · ")),
  ];
}

// What a dead letter opens to.
export async function openedLetter(queue, { id }, server, reload) {
  const letter = await get(path(queue, "dead", id));
  const payload = decode(letter);
  const one = path(queue, "dead", id);
  const buttons = server.read_only ? null : h("div", { class: "buttons" },
    action("Requeue", async () => {
      await call("POST", path(queue, "items", id, "requeue"), {});
      toast(`${id} is ready again.`);
      await reload();
    }, { class: "primary" }),
    payload && action("Edit the payload…", () => edit(queue, id, payload, reload)),
    deletion(one, id, "Delete this dead letter?", reload));
  const known = facts(letter, [
    ["Attempts", String(letter.attempts)],
    ["Crashes", letter.crashes > 0 ? String(letter.crashes) : null],
  ]);
  return h("div", null, h("pre", { class: "reason" }, visibleLines(letter.reason) || "No reason was given."), timeline(letter), known,
    payload && payloadView(payload, { name: `${id}.bin` }), buttons);
}

// Bytes that are no text are changed by a command.
async function edit(queue, id, payload, reload) {
  const now = readable(payload, false);
  if (now === null) return toast("The payload is no text. kvqueue item edit-payload changes it.", true);
  const input = h("textarea", { rows: 12, spellcheck: "false", id: unique("payload") });
  input.value = now;
  const body = [
    h("p", null, "The dead letter gets another payload, and stays dead until it is requeued."),
    h("label", { for: input.id }, "Payload"), input,
  ];
  const text = await ask({ title: "Edit the payload", body, confirm: "Save", read: () => input.value });
  if (text === null) return;
  await call("PUT", path(queue, "items", id, "payload"), { payload: text });
  toast("The payload is changed.");
  await reload();
}

// Repeats a request that stops after some seconds until it is done. Letters that die
// again meanwhile are not requeued again: it ends when as many are changed as there were.
async function repeated(at, body, known) {
  let [items, last] = [0, { more: true }];
  while (last.more && items < known) {
    last = await call("POST", at, body);
    items += last.items;
    // The rest cannot be changed, and each request would begin with it again.
    if (!last.items) break;
  }
  return { ...last, items };
}

async function requeueAll(queue, known, reload) {
  const body = [h("p", null, "They become ready again, each at its own place in the queue, with all its attempts before it.")];
  if (!(await ask({ title: `Requeue ${plural(known, "dead letter")}?`, body, confirm: "Requeue all" }))) return;
  const { items, refused, unreadable } = await repeated(path(queue, "requeue"), { dead: true }, known);
  const kept = refused ? ` Left, as another item has the unique key: ${refused}.` : "";
  const damaged = unreadable ? ` Left, as they cannot be read: ${unreadable}.` : "";
  toast(`${plural(items, "item")} ready again.${kept}${damaged}`);
  await reload();
}

async function purge(queue, known, reload) {
  const input = h("input", { type: "text", autocomplete: "off", spellcheck: "false", id: "purge-name" });
  const body = [
    h("p", null, `${plural(known, "dead letter")} and their payloads are deleted for good. Nothing brings them back.`),
    h("label", { for: "purge-name" }, "To confirm, type the queue's name: ", h("code", null, visible(queue))), input,
  ];
  const sure = await ask({ title: "Purge all dead letters?", body, confirm: "Purge all", danger: true, valid: () => input.value === queue });
  if (!sure) return;
  const { items } = await repeated(path(queue, "dead", "purge"), { confirm: queue }, Infinity);
  toast(`${plural(items, "dead letter")} deleted.`);
  await reload();
}
