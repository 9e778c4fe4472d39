// The rules of a keyed queue, and changing them; its held keys, and letting them go on.

import { call, get, path } from "./api.js";
import { h } from "./dom.js";
import { visible } from "./format.js";
import { listing } from "./listing.js";
import { action, ask, complain, toast } from "./ui.js";

const COLUMNS = ["Keys", "Running", "Rate", "Weight", "Ordered", "On dead", ""];
const HINT = "A rule is for the keys that match its pattern; * stands for any text. The most specific rule sets each limit. Rules are kept in the database, for all daemons.";

// The scope of a rule, as a request names it.
const scope = ({ pattern, pattern_base64: encoded, whole_queue: whole }) =>
  whole ? { whole_queue: true } : encoded !== undefined ? { pattern_base64: encoded } : { pattern };

const named = ({ pattern, pattern_base64: encoded, whole_queue: whole }) =>
  whole ? "The whole queue" : visible(pattern ?? `${encoded} (base 64)`);

const HELD = "Ordered keys that wait: for an item that is tried again, or for a dead letter that blocks the key.";

const paced = ({ rate, burst }) => rate && (burst === undefined ? rate : `${rate}, burst ${burst}`);

export function limits(queue, server) {
  const where = path(queue, "limits");
  const body = h("tbody");
  const empty = h("p", { class: "empty", hidden: true }, "There are no rules: any number of items of each key run, as soon as they can, and all keys have the same share.");
  const table = h("table", { class: "cards" }, h("caption", { class: "unseen" }, "Rules"),
    h("thead", null, h("tr", null, COLUMNS.map((it) => h("th", { scope: "col" }, it)))), body);
  const add = server.read_only ? null : action("Add a rule…", () => change(where, null, load), { class: "primary" });
  const held = heldKeys(queue, server);
  const element = h("div", null,
    h("div", { class: "bar" }, h("p", { class: "muted" }, HINT), h("span", { class: "space" }), add, h("button", { type: "button", onclick: () => load() }, "Refresh")),
    h("div", { class: "panel" }, table, empty), h("h2", { class: "apart" }, "Held keys"), h("p", { class: "muted" }, HELD), held.element);

  const row = (rule) => {
    const cells = [rule.running, paced(rule), rule.weight, rule.ordered === undefined ? undefined : rule.ordered ? "yes" : "no", rule.on_dead];
    const buttons = server.read_only ? null : h("div", { class: "buttons" },
      action("Change…", () => change(where, rule, load)), action("Remove…", () => remove(where, rule, load), { class: "danger" }));
    return h("tr", null, h("th", { scope: "row" }, h("bdi", null, named(rule))),
      cells.map((value, at) => h("td", { "data-label": COLUMNS[at + 1] }, value === undefined ? "–" : String(value))), h("td", null, buttons));
  };

  async function load() {
    held.load();
    try {
      const { rules } = await get(where);
      body.replaceChildren(...rules.map(row));
      table.hidden = rules.length === 0;
      empty.hidden = rules.length > 0;
    } catch (error) {
      complain(error);
    }
  }
  return { element, load, update: (it) => held.nudge(`${it.waiting} ${it.dead} ${it.blocked_keys}`) };
}

// The held keys, each of which opens to what can be done.
function heldKeys(queue, server) {
  const name = ({ key, key_base64: encoded }) => visible(key ?? `${encoded} (base 64)`);
  return listing({
    label: "Held keys",
    where: path(queue, "held"),
    rows: ({ keys }) => keys.map((it) => ({ ...it, id: it.item })),
    row: (it) => [h("span", { class: "preview" }, name(it)), h("span", { class: "meta" }, it.item_state === "dead" ? "waits for a dead letter" : "waits for an item that is tried again")],
    detail: async (it, reload) => h("div", null, h("p", null, "It waits for ", h("code", { class: "id" }, it.item), "."),
      server.read_only ? null : h("div", { class: "buttons" }, action("Unblock…", () => unblock(queue, it, name(it), reload), { class: "danger" }))),
    empty: "No key is held.",
  });
}

async function unblock(queue, { key, key_base64: encoded, item_state: state }, name, reload) {
  const stays = state === "dead" ? "The dead letter stays a dead letter. To keep the order, requeue or purge it instead." : "The item that is tried again runs at its time, after them.";
  const body = [h("p", null, "The items of ", h("bdi", null, name), ` that are ready run now. ${stays}`)];
  if (!(await ask({ title: "Unblock this key?", body, confirm: "Unblock", danger: true }))) return;
  await call("POST", path(queue, "unblock"), encoded === undefined ? { key } : { key_base64: encoded });
  toast(`${name} goes on.`);
  await reload();
}

// Asks for a rule, and sets it. A rule that is there keeps its pattern.
async function change(where, rule, reload) {
  const field = (name, label, hint, props) => {
    const input = h("input", { id: `limits-${name}`, autocomplete: "off", ...props });
    return { input, nodes: [h("label", { for: input.id }, label), input, hint && h("p", { class: "muted" }, hint)].filter(Boolean) };
  };
  const number = (name, label, hint, min) => field(name, label, hint, { type: "number", min, max: 4294967295, step: 1, value: rule?.[name] });
  const pattern = field("pattern", "Keys", "As in tenant-*. Leave it empty for the whole queue.", { type: "text", maxlength: 256, spellcheck: "false" });
  const running = number("running", "Most items that run at the same time", "0 stops them. Leave it empty for any number.", 0);
  const weight = number("weight", "Weight", "The share of each key next to other keys. Leave it empty for 1.", 1);
  const rate = field("rate", "Rate", "How many items start in a time, as in 100/1m. Leave it empty for any number.", { type: "text", pattern: "\\s*[1-9][0-9]*\\s*/.+", spellcheck: "false", value: rule?.rate ?? "" });
  const burst = number("burst", "Burst", "With a rate: how many items start at once after a time without any. Leave it empty for those of a tenth of a second.", 1);
  const ordered = h("input", { type: "checkbox", checked: rule?.ordered === true });
  const order = h("label", { class: "choice" }, ordered, h("span", null, "Items of a key run one at a time, in order"));
  const choices = [["", "As another rule says, or nothing"], ["continue", "Nothing: the items behind it run"], ["block", "It blocks the key until somebody acts"]];
  const onDead = h("select", { id: "limits-on-dead" }, choices.map(([value, label]) => h("option", { value, selected: value === (rule?.on_dead ?? "") }, label)));
  const dead = [h("label", { for: onDead.id }, "What a dead letter does to an ordered key"), onDead];
  const read = () => {
    const of = rule ? scope(rule) : pattern.input.value === "" ? { whole_queue: true } : { pattern: pattern.input.value };
    const numbers = [["running", running.input], ["burst", burst.input], ["weight", weight.input]].filter(([, input]) => input.value !== "");
    return { ...of, ...Object.fromEntries(numbers.map(([name, input]) => [name, Number(input.value)])),
      ...(rate.input.value === "" ? {} : { rate: rate.input.value }), ...(ordered.checked ? { ordered: true } : {}),
      ...(onDead.value === "" ? {} : { on_dead: onDead.value }) };
  };
  const inputs = [running, rate, burst, weight].map((it) => it.input);
  const sets = () => [running, rate, weight].some((it) => it.input.value !== "") || ordered.checked || onDead.value !== "";
  const valid = () => inputs.every((it) => it.validity.valid) && sets() && (burst.input.value === "" || rate.input.value !== "");
  const body = [...(rule ? [h("p", null, h("bdi", null, named(rule)))] : pattern.nodes), ...running.nodes, ...rate.nodes, ...burst.nodes,
    ...(rule?.whole_queue ? [] : [...weight.nodes, order, ...dead])];
  const wanted = await ask({ title: rule ? "Change this rule" : "Add a rule", body, confirm: "Set", read, valid });
  if (!wanted) return;
  await call("PUT", where, wanted);
  toast(`The rule of ${named(wanted)} is set.`);
  await reload();
}

async function remove(where, rule, reload) {
  const body = [h("p", null, "The limits of ", h("bdi", null, named(rule)), " are then set by less specific rules, if there are any.")];
  if (!(await ask({ title: "Remove this rule?", body, confirm: "Remove", danger: true }))) return;
  await call("DELETE", `${where}?${new URLSearchParams(scope(rule))}`);
  toast(`The rule of ${named(rule)} is removed.`);
  await reload();
}
