#!/usr/bin/env node
// A worker process for `handler = "exec"` with `mode = "worker"`. Copy it and write your own `handle`.
//
//     [queues.emails.handler-config]
//     command = ["node", "exec_worker.js"]
//     mode = "worker"
//
// Node 18 and later, nothing else. docs/workers/processes.md explains the lines.
"use strict";

const readline = require("node:readline");

/** The item failed. It is tried again after some milliseconds, or by the queue's rules. */
class Retry extends Error {
  constructor(message, { after } = {}) {
    super(message);
    // At most a year.
    if (Number.isFinite(after)) this.afterMs = Math.round(Math.min(Math.max(after, 0), 365 * 24 * 3_600_000));
  }
}

/** The item goes back to the queue. The attempt does not count. */
class Release extends Error {}

/** The item failed for good, and becomes a dead letter. */
class Dead extends Error {}

/**
 * Handles one item. An exception is a retry. `signal` fires when the item has to end; call `heartbeat()` now and then in
 * long work.
 */
async function handle(item, { signal, heartbeat }) {
  console.log(item.id, item.attempt, item.payload.toString());
}

const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
// What a handler logs goes to the daemon's log: standard output is for the daemon.
console.log = console.info = console.error;

/** Calls the handler, and returns the fields of the outcome's line. */
async function outcome(item, tools) {
  try {
    await handle(item, tools);
    return { outcome: "done" };
  } catch (error) {
    if (error instanceof Release) return { outcome: "release" };
    // As a daemon reads it: short, and without halves of surrogate pairs.
    const reason = Buffer.from(String(error?.message || error).slice(0, 1000)).toString();
    if (error instanceof Dead) return { outcome: "dead", reason };
    return { outcome: "retry", reason, after_ms: error instanceof Retry ? error.afterMs : undefined };
  }
}

let current;
// At the end of the input the daemon needs this process no longer, and Node ends by itself.
readline.createInterface({ input: process.stdin }).on("line", async (text) => {
  const line = JSON.parse(text);
  if (line.kvqueue) return say({ kvqueue: 1 });
  if (line.cancel) return current?.id === line.cancel && current.controller.abort();
  const { id } = line;
  current = { id, controller: new AbortController() };
  const payload = Buffer.from(line.payload_base64 ?? line.payload, line.payload_base64 === undefined ? "utf8" : "base64");
  const tools = { signal: current.controller.signal, heartbeat: () => say({ heartbeat: id }) };
  say({ id, ...(await outcome({ ...line, payload }, tools)) });
});
