// A payload: as text, as JSON, as bytes.

import { h, text } from "./dom.js";
import { bytes as size } from "./format.js";
import { tabs, toast } from "./ui.js";

const TEXT_AT_FIRST = 65536;
const RESULT_AT_FIRST = 2000;
const ROWS_AT_FIRST = 256;
const ACROSS = 16;

// What an item's JSON has under `key`: text, or bytes in base 64.
export function decode(object, key = "payload") {
  if (object[key] !== undefined) return new TextEncoder().encode(object[key]);
  const encoded = object[`${key}_base64`];
  return encoded === undefined ? null : Uint8Array.from(atob(encoded), (it) => it.charCodeAt(0));
}

export function firstLine(payload, limit = 120) {
  const line = new TextDecoder().decode(payload.subarray(0, limit * 4)).split(/\r?\n/, 1)[0];
  return line.length > limit ? `${line.slice(0, limit)}…` : line;
}

// The result of an item.
export const resultView = (result, name) => payloadView(result, { name, what: "result", first: RESULT_AT_FIRST, title: h("b", null, "Result") });

// `total`: how long it is, if there is more than `payload`; `whole()` shows all of it; `first`: how much of a text is shown at first.
export function payloadView(payload, { name, total = payload.length, whole = null, what = "payload", first = TEXT_AT_FIRST, title = null }) {
  const strict = readable(payload, total > payload.length);
  const json = total === payload.length && strict !== null ? indented(strict) : null;
  const pre = h("pre", { class: "payload", tabindex: 0 });
  const notes = h("p", { class: "note" });
  const more = h("button", { type: "button", class: "plain" });
  let shown = json !== null ? "json" : strict !== null ? "text" : "hex";
  let all = false;

  const words = () => (shown === "json" ? json : strict ?? new TextDecoder().decode(payload));
  const draw = () => {
    pre.replaceChildren();
    const limit = all ? Infinity : first;
    let cut = false;
    if (shown === "hex") {
      const rows = Math.ceil(payload.length / ACROSS);
      cut = !all && rows > ROWS_AT_FIRST;
      text(pre, hex(payload.subarray(0, cut ? ROWS_AT_FIRST * ACROSS : payload.length)));
    } else {
      const full = words();
      cut = full.length > limit;
      text(pre, cut ? full.slice(0, limit) : full);
    }
    pre.classList.toggle("hex", shown === "hex");
    more.hidden = !cut;
    more.textContent = "Show all of it";
    const parts = [];
    if (payload.length === 0 && total === 0) parts.push(`The ${what} is empty.`);
    if (strict === null && shown === "text") parts.push("This is not UTF-8: what cannot be read is shown as �.");
    if (total > payload.length) parts.push(`These are the first ${size(payload.length)} of ${size(total)}.`);
    text(notes, parts.join(" "));
    notes.hidden = parts.length === 0;
  };
  more.onclick = () => ((all = true), draw());

  const names = [["text", "Text"], ["json", "JSON"], ["hex", "Hex"]];
  const bar = tabs(`Show the ${what} as`, names, shown, (tab) => ((shown = tab), draw()));
  if (json === null) {
    bar.button("json").disabled = true;
    bar.button("json").title = total > payload.length ? "Load the whole payload first" : `The ${what} is not JSON`;
  }
  draw();
  return h("section", { class: "payload-view", "aria-label": what === "result" ? "Result" : "Payload" },
    h("div", { class: "bar" }, title, bar.node, h("span", { class: "muted" }, size(total)), h("span", { class: "space" }),
      whole && h("button", { type: "button", class: "small", onclick: whole }, "Load the whole payload"),
      copyButton(() => (shown === "hex" ? hex(payload) : words())), download(payload, name)),
    notes, pre, more);
}

// The text, or null if it is none. A cut may go through a character.
export function readable(payload, cut) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(payload, { stream: cut });
  } catch {
    return null;
  }
}

// JSON with indents; null if it is none. The text is indented and not read as values: long numbers keep their digits.
export function indented(source) {
  if (!/^\s*[[{]/.test(source)) return null;
  try {
    JSON.parse(source);
  } catch {
    return null;
  }
  const tokens = source.match(/"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/g);
  const out = [];
  let depth = 0;
  const line = () => out.push("\n", "  ".repeat(Math.min(depth, 40)));
  tokens.forEach((token, at) => {
    const closes = token === "]" || token === "}";
    if (closes) {
      depth -= 1;
      if (!"[{".includes(tokens[at - 1])) line();
    }
    out.push(token === ":" ? ": " : token);
    if (token === "[" || token === "{") {
      depth += 1;
      if (!"]}".includes(tokens[at + 1])) line();
    } else if (token === ",") line();
  });
  return out.join("");
}

// Rows of offset, bytes, and characters.
export function hex(payload) {
  const rows = [];
  for (let at = 0; at < payload.length; at += ACROSS) {
    const row = [...payload.subarray(at, at + ACROSS)];
    const codes = row.map((it) => it.toString(16).padStart(2, "0")).join(" ").padEnd(ACROSS * 3 - 1);
    const signs = row.map((it) => (it >= 0x20 && it < 0x7f ? String.fromCharCode(it) : "·")).join("");
    rows.push(`${at.toString(16).padStart(6, "0")}  ${codes}  ${signs}`);
  }
  return rows.join("\n");
}

// There is no clipboard for pages from afar without TLS.
function copyButton(read) {
  if (!navigator.clipboard) return null;
  const copy = () => navigator.clipboard.writeText(read()).then(() => toast("Copied"), () => toast("The browser does not allow it", true));
  return h("button", { type: "button", class: "small", onclick: copy }, "Copy");
}

function download(payload, name) {
  return h("button", { type: "button", class: "small", onclick: () => {
    const url = URL.createObjectURL(new Blob([payload], { type: "application/octet-stream" }));
    h("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  } }, "Download");
}
