// The page: which part of it is shown, and what the daemon's events change in it.

import { onTokenNeeded } from "./api.js";
import { audit } from "./audit.js";
import { consumers } from "./consumers.js";
import { daemon } from "./daemon.js";
import { h, keyed, text } from "./dom.js";
import { visible } from "./format.js";
import { follow } from "./feed.js";
import { overview } from "./overview.js";
import { queuePage } from "./queue.js";
import { askForToken, closeDialogs } from "./ui.js";

const main = document.getElementById("main");
const feed = document.getElementById("feed");
const notices = document.getElementById("notices");
const PARTS = ["ready", "scheduled", "retrying", "running", "dead", "ended", "consumers", "workers", "limits", "schedules"];

const app = { view: null, route: "", snapshot: null, server: { read_only: false }, state: "connecting", about: {} };

// What the address says: which view, made by whom, and the part of it.
function route() {
  const [, page = "", name, part] = location.hash.split("/");
  if (page === "queue" && name) {
    const queue = decoded(name);
    return { key: `queue ${queue}`, make: (at) => queuePage(queue, at, app.server), part: PARTS.includes(part) ? part : "ready" };
  }
  if (page === "consumers") return { key: page, make: consumers };
  if (page === "audit") return { key: page, make: audit };
  if (page === "daemon") return { key: page, make: () => daemon(app.server) };
  return { key: "queues", make: overview };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function show() {
  const { key, make, part } = route();
  if (key === app.route) return app.view.part?.(part);
  const first = app.route === "";
  app.view?.close?.();
  closeDialogs();
  app.route = key;
  app.view = make(part);
  main.replaceChildren(app.view.element);
  if (app.snapshot) app.view.update(app.snapshot);
  for (const link of document.querySelectorAll("nav a"))
    link.dataset.page === app.view.page ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
  retitle();
  window.scrollTo(0, 0);
  // The focus shows screen readers that there is another page.
  if (!first) main.focus({ preventScroll: true });
}

function retitle() {
  const letters = app.snapshot?.queues.reduce((all, it) => all + Math.max(0, it.dead ?? 0), 0) ?? 0;
  const title = `${letters ? `(${letters} dead) ` : ""}${app.view.title} · kvqueue`;
  if (document.title !== title) document.title = title;
}

function notice() {
  const all = [];
  const { snapshot, state, about } = app;
  if (state === "lost") {
    const left = Math.max(0, Math.ceil((about.until - Date.now()) / 1000));
    const old = snapshot ? " What is shown is as it was last." : "";
    all.push(["bad", "lost", `No connection: ${about.reason}.${old}`, left ? `Trying again in ${left} s.` : "Trying again."]);
  }
  if (state === "token") all.push(["warn", "token", "This daemon asks for a token.", ""]);
  if (snapshot && state !== "lost") {
    if (snapshot.not_ready.length) all.push(["bad", "ready", `Not ready: ${snapshot.not_ready.join("; ")}.`, ""]);
    const refused = snapshot.database.space?.pushes_refused;
    if (refused) all.push(["bad", "space", `Pushes are refused: ${refused}.`, "Everything else goes on."]);
    if (snapshot.config.refused) all.push(["warn", "config", `The configuration was not taken up: ${snapshot.config.refused}`, ""]);
  }
  keyed(notices, all, ([, key]) => key, ([mood, key]) => {
    const said = h("span");
    // It counts down: not to be read out each second.
    const more = h("span", { "aria-hidden": "true" });
    const enter = key === "token" && h("button", { type: "button", onclick: () => app.enter?.() }, "Enter the token");
    return { node: h("p", { class: `notice ${mood}` }, said, " ", more, enter), update: ([, , words, rest]) => (text(said, visible(words)), text(more, rest)) };
  });
  const stopping = snapshot?.phase === "draining" && state === "live";
  const words = { live: stopping ? "Stopping" : "Live", connecting: "Connecting", lost: "No connection", token: "Token needed" };
  feed.dataset.state = stopping ? "lost" : state;
  text(feed.querySelector(".text"), `${words[state]}${app.server.read_only ? ", read-only" : ""}`);
  document.body.classList.toggle("stale", state === "lost");
}

async function needToken() {
  if (await askForToken()) return;
  await new Promise((resolve) => {
    app.enter = async () => (await askForToken()) && resolve();
  });
}

onTokenNeeded(askForToken);
follow({
  snapshot: (snapshot) => {
    app.snapshot = snapshot;
    app.view.update(snapshot);
    retitle();
    notice();
  },
  server: (server) => {
    const differs = server.read_only !== app.server.read_only;
    // Views look at this very object.
    Object.assign(app.server, server);
    if (differs) {
      app.route = "";
      show();
    }
    notice();
  },
  state: (state, about) => {
    // While it tries again, it still says what is wrong.
    if (state === "connecting" && app.state === "lost") return;
    app.state = state;
    app.about = about;
    notice();
  },
  token: needToken,
});
setInterval(() => app.state === "lost" && notice(), 1000);
window.addEventListener("hashchange", show);
show();
