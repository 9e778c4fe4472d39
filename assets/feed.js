// The daemon's events: snapshots, as they come, and what is to be said while none do.

import { failure } from "./api.js";

const SILENCE = 40000; // the daemon says something every 15 s
const HIDDEN = 60000; // nobody looks: the daemon need not either
const FIRST = 1000;
const LONGEST = 10000;

// `on` has: snapshot(object), server(object), state(name, { reason, until }), token() which resolves when the browser is signed in.
export function follow(on) {
  const feed = { failures: 0, wake: null, stop: null };
  run(feed, on);
  window.addEventListener("online", () => feed.wake?.());
  let hidden = 0;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hidden);
    if (document.hidden) hidden = setTimeout(() => feed.stop?.(), HIDDEN);
    else feed.wake?.();
  });
}

async function run(feed, on) {
  for (;;) {
    if (document.hidden) await visible();
    on.state("connecting", {});
    let reason;
    try {
      reason = await read(feed, on);
    } catch (error) {
      if (error.status === 401) {
        on.state("token", {});
        await on.token();
        continue;
      }
      reason = error.status ? `${error.message}` : "the daemon cannot be reached";
    }
    if (document.hidden) continue;
    const pause = Math.min(FIRST * 2 ** feed.failures, LONGEST);
    feed.failures += 1;
    on.state("lost", { reason, until: Date.now() + pause });
    await new Promise((resolve) => {
      feed.wake = resolve;
      setTimeout(resolve, pause);
    });
  }
}

const visible = () =>
  new Promise((resolve) => {
    const check = () => !document.hidden && (document.removeEventListener("visibilitychange", check), resolve());
    document.addEventListener("visibilitychange", check);
  });

// Reads one stream to its end, and says why it ended.
async function read(feed, on) {
  const abort = new AbortController();
  feed.stop = () => abort.abort();
  let timer = setTimeout(feed.stop, SILENCE);
  try {
    const headers = { Accept: "text/event-stream" };
    const response = await fetch("api/v1/events", { headers, signal: abort.signal, cache: "no-store" });
    if (!response.ok) throw await failure(response);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ""; ; ) {
      const { done, value } = await reader.read();
      if (done) return "the daemon ended the connection";
      clearTimeout(timer);
      timer = setTimeout(feed.stop, SILENCE);
      const events = (rest + value).split("\n\n");
      rest = events.pop();
      for (const event of events) if (tell(feed, on, event)) return "the daemon is stopping";
    }
  } finally {
    clearTimeout(timer);
    abort.abort();
  }
}

// Hands on one event; true if it was the last.
function tell(feed, on, event) {
  const field = (name) => event.split("\n").find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
  switch (field("event")) {
    case "snapshot":
      feed.failures = 0;
      on.state("live", {});
      safely(on.snapshot, JSON.parse(field("data")));
      return false;
    case "server":
      safely(on.server, JSON.parse(field("data")));
      return false;
    case "gone":
      return true;
    default:
      return false; // a comment that keeps the connection alive
  }
}

// A mistake of the page's is not the connection's.
function safely(show, value) {
  try {
    show(value);
  } catch (error) {
    reportError(error);
  }
}
