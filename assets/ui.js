// Small parts that several pages use: messages, dialogs, tabs, tiles, buttons that act.

import { ApiError, signIn } from "./api.js";
import { h, text, unique } from "./dom.js";

const STAYS = 6000;

// Says something in the corner. Errors stay until they are closed.
export function toast(message, bad = false, fix = "") {
  const close = () => node.remove();
  const node = h("div", { class: `toast ${bad ? "bad" : "ok"}`, role: bad ? "alert" : null },
    h("p", null, message, fix && h("span", { class: "fix" }, fix)),
    h("button", { class: "plain", type: "button", "aria-label": "Close", onclick: close }, "✕"));
  const toasts = document.getElementById("toasts");
  toasts.append(node);
  while (toasts.children.length > 4) toasts.firstChild.remove();
  if (!bad) setTimeout(close, STAYS);
}

export function complain(error) {
  if (error instanceof ApiError) toast(error.message, true, error.fix);
  else {
    toast(String(error), true);
    throw error;
  }
}

// A button that does something at the daemon: not twice at a time, and what fails is said.
export function action(label, act, props = {}) {
  const button = h("button", { type: "button", ...props, onclick: async () => {
    if (button.getAttribute("aria-disabled") === "true") return;
    button.setAttribute("aria-disabled", "true");
    try {
      await act();
    } catch (error) {
      complain(error);
    } finally {
      button.removeAttribute("aria-disabled");
    }
  } }, label);
  return button;
}

// Closes the dialogs of the view that is left: what they ask is about that view. The one that asks for a token stays.
export function closeDialogs() {
  for (const dialog of document.querySelectorAll("dialog[open]:not([data-stays])")) dialog.close("");
}

// Asks, in a dialog; resolves to what `read` returns if it was confirmed, and to null if not.
export function ask({ title, body, confirm, danger = false, stays = false, read = () => true, valid = () => true }) {
  const id = unique("title");
  const yes = h("button", { class: danger ? "danger" : "primary", value: "yes", type: "submit" }, confirm);
  const form = h("form", { method: "dialog" },
    h("h2", { id }, title), ...body,
    h("div", { class: "buttons" },
      h("button", { type: "button", onclick: () => dialog.close("") }, "Cancel"), yes));
  const dialog = h("dialog", { "aria-labelledby": id, "data-stays": stays ? "" : null }, form);
  const check = () => (yes.disabled = !valid());
  form.addEventListener("input", check);
  check();
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes" ? read() : null);
    });
  });
}

let asking = null;

// Asks for a token until the browser is signed in, or the person gives up. Simultaneous callers get the same answer.
export function askForToken() {
  asking ??= untilSignedIn().finally(() => (asking = null));
  return asking;
}

async function untilSignedIn() {
  for (let problem = ""; ; ) {
    const token = await askOnce(problem);
    if (token === null) return false;
    try {
      if (await signIn(token)) return true;
      problem = "The daemon does not know this token. ";
    } catch (error) {
      problem = `Cannot sign in: ${error.message}. `;
    }
  }
}

function askOnce(problem) {
  const input = h("input", { type: "password", autocomplete: "current-password", required: true, id: unique("token") });
  return ask({
    title: "A token is needed",
    body: [
      h("p", null, `${problem}Enter an access token, or run "kvqueue page" on the daemon's machine: it prints a link that signs this browser in.`),
      h("label", { for: input.id }, "Token"), input,
    ],
    confirm: "Sign in",
    stays: true,
    read: () => input.value.trim(),
    valid: () => input.value.trim() !== "",
  });
}

// A figure with a name. `href`: where the things are that it counts.
export function tile(name, hint, href = null) {
  const value = h("dd", null, "–");
  const node = h("div", { class: "tile", title: hint }, h("dt", null, href ? h("a", { href }, name) : name), value);
  return { node, set: (shown, mood = "") => (text(value, shown), (value.className = mood)) };
}

// Tabs by the pattern of the ARIA guide: arrows move, the chosen one is in the tab order. `choose(name)` is called for a new choice.
export function tabs(label, names, chosen, choose) {
  const buttons = names.map(([name, title]) =>
    h("button", { type: "button", role: "tab", "data-tab": name, onclick: () => pick(name) }, title));
  const list = h("div", { role: "tablist", "aria-label": label, class: "tabs", onkeydown: (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const open = buttons.filter((it) => !it.disabled);
    const at = open.indexOf(document.activeElement);
    if (!step || at < 0) return;
    event.preventDefault();
    const next = open[(at + step + open.length) % open.length];
    next.focus();
    next.click();
  } }, buttons);
  const show = (name) => buttons.forEach((it) => {
    const on = it.dataset.tab === name;
    it.setAttribute("aria-selected", on);
    it.tabIndex = on ? 0 : -1;
  });
  const pick = (name) => (show(name), choose(name));
  show(chosen);
  return { node: list, button: (name) => buttons.find((it) => it.dataset.tab === name), show };
}
