// What several pages show of a queue.

import { h } from "./dom.js";
import { since, visible } from "./format.js";

export const queueHref = (queue, part) => `#/queue/${encodeURIComponent(queue)}${part ? `/${part}` : ""}`;

export const queueLink = (queue, part) => h("a", { class: "name", href: queueHref(queue, part) }, h("bdi", null, visible(queue)));

// [label, mood, hint] of what is out of the ordinary with a queue.
export function badges(queue) {
  const all = [];
  if (queue.paused) {
    const why = queue.paused.reason ? `: ${visible(queue.paused.reason)}` : "";
    all.push([queue.paused.frozen ? "Frozen" : "Paused", "warn", `For all daemons, since ${since(queue.paused.since)}${why}`]);
  }
  if (queue.paused_locally) all.push(["Paused locally", "warn", "For this daemon alone, until it is resumed or restarted"]);
  if (queue.unavailable) {
    const { reason, since: began } = queue.unavailable;
    all.push(["Handler cannot work", "bad", `In this daemon, since ${since(began)}: ${visible(reason)}`]);
  }
  if (queue.fetch_error) all.push(["Fetches fail", "bad", `In this daemon: ${visible(queue.fetch_error)}`]);
  if (queue.ready === undefined) all.push(["Not read yet", "", "The database has not said what is in it"]);
  return all;
}

const WHO = {
  token: ({ name }) => `token ${name}`,
  operator: () => "operator",
  local: ({ name, uid }) => (name ? `local user ${name} (uid ${uid})` : `local user with uid ${uid}`),
  anyone: () => "anyone",
};

// Who sent a request, or ran a command.
export const who = (it) => visible(WHO[it.kind](it));

// What a consumer is doing, for people.
export const CONSUMER_STATES = {
  fetching: ["Fetching", "A fetch is under way, or waits for the one before it"],
  paused: ["Paused", "Its queue is paused"],
  idle: ["Idle", "It waits for pushes"],
  handling: ["Handling", "Its handler has items, or what it said of them is being settled"],
  backoff: ["Backing off", "It rests after a take that failed"],
  unavailable: ["Handler unavailable", "It waits until its handler can work again"],
  closing: ["Closing", "It settles what is left, and ends"],
};
