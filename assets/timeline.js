// The life of an item as a time line: pushed, started, attempts that failed, due, ended.

import { h } from "./dom.js";
import { moment, roughly, since, until, visible, visibleLines } from "./format.js";

const ENDINGS = { done: "Ended: done", dead: "Became a dead letter", cancelled: "Cancelled", taken: "Taken for good" };

// Events as [time, what happened, more about it, mood], the oldest first. A time that is not known is left out.
function events(it) {
  const { lease, handled_by: by, failures = [] } = it;
  const schedule = it.attributes?.schedule;
  const ended = it.state === "finished";
  return [
    it.enqueued_at && [it.enqueued_at, "Pushed", schedule && `by the schedule ${visible(schedule)}`],
    ...failures.map(({ at, attempt, before_retry: before, reason }) => [at, `Attempt ${attempt} failed${before ? ", before it was retried" : ""}`, reason, "bad"]),
    it.died_at && [it.died_at, "Became a dead letter", !failures.some(({ reason }) => reason === it.reason) && it.reason, "bad"],
    it.started_at && [it.started_at, "Fetched for the last time"],
    by && [by.started_at, "Started", `by consumer #${by.consumer} of this daemon, ${roughly(by.for_seconds)} ago`],
    !by && lease && [null, "Running", lease.process ? `in process ${lease.process}` : "on a lease of another program"],
    it.due && [it.due, "Due", until(it.due)],
    ended && [it.ended_at, ENDINGS[it.outcome] ?? "Ended", told(it), { done: "ok", dead: "bad" }[it.outcome]],
  ].filter(Boolean);
}

// How an item ended, and which process ended it.
function told({ outcome, reason, attempts, started_at: started, ended_at: at, worker }) {
  const after = `after ${attempts} ${attempts === 1 ? "attempt" : "attempts"}`;
  const took = started && `, ${roughly((new Date(at) - new Date(started)) / 1000)} after its last fetch`;
  const by = worker && `, by ${visible(worker)}`;
  return [outcome === "cancelled" ? null : after, took, by].filter(Boolean).join("").replace(/^, /, "") + (reason ? `\n${reason}` : "");
}

export function timeline(it) {
  return h("ol", { class: "timeline", "aria-label": "Time line" }, events(it).map(([at, what, more, mood]) =>
    h("li", { class: mood ?? "" }, h("time", { datetime: at, title: at && `${at}, ${since(at)} ago` }, at ? moment(at) : "now"),
      h("div", null, h("b", null, what), more && h("pre", null, visibleLines(more))))));
}
