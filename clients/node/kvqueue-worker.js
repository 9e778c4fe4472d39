/**
 * A worker for kvqueue queues, over HTTP. One file, no dependencies, Node 18 and later.
 *
 *     const { work } = require("./kvqueue-worker");
 *     await work("http://127.0.0.1:7420", "emails", async (item) => console.log(item.payload.toString()));
 *
 * docs/WORKERS.md of kvqueue explains leases and outcomes.
 */
"use strict";

/** How long a request for items waits at the daemon, in milliseconds. */
const WAIT = 20_000;
/** How long other requests may take, in milliseconds. */
const TIMEOUT = 30_000;
/** The pauses after a failure, in milliseconds: the first one, and the longest. */
const PAUSES = [100, 10_000];

/** The item failed. It is tried again after some milliseconds, or by the queue's rules. */
class Retry extends Error {
  constructor(reason = "", { after } = {}) {
    super(reason);
    this.after = after;
  }
}

/** The item goes back to the queue. The attempt does not count. */
class Release extends Error {}

/** The item failed for good, and becomes a dead letter. */
class Dead extends Error {}

/** The daemon refused a request. */
class ApiError extends Error {
  constructor(status, code, message) {
    super(`${message} (${status} ${code})`);
    this.status = status;
    this.code = code;
  }
}

/** The API of a daemon for one queue. */
class Client {
  constructor(url, queue, { token = process.env.KVQUEUE_TOKEN } = {}) {
    this.base = `${String(new URL(url)).replace(/\/$/, "")}/api/v1/queues/${encodeURIComponent(queue)}`;
    this.headers = token ? { Authorization: `Bearer ${token}` } : {};
  }

  /** Sends a request. The daemon's answer as JSON, or an ApiError. */
  async call(path, body = {}, { timeout = TIMEOUT, signal } = {}) {
    const limit = AbortSignal.timeout(timeout);
    const response = await fetch(this.base + path, {
      method: "POST",
      headers: { ...this.headers, "Content-Type": "application/json" },
      body: JSON.stringify(body),
      signal: signal ? either(signal, limit) : limit,
    });
    const text = await response.text();
    if (response.ok) return text ? JSON.parse(text) : null;
    let error;
    try {
      ({ error } = JSON.parse(text));
    } catch {
      // Another program has answered, such as a proxy.
    }
    throw error
      ? new ApiError(response.status, error.code, `${error.message}; ${error.fix}`)
      : new ApiError(response.status, "unknown", text.slice(0, 200));
  }

  /** Leases items. `lease` is null if nothing is ready. Times are in milliseconds. */
  async lease({ max = 1, wait = 0, lease, signal } = {}) {
    const answer = await this.call("/lease", { max, wait_ms: wait, lease_ms: lease }, { timeout: wait + TIMEOUT, signal });
    return { lease: answer.lease, expiresIn: answer.expires_in_ms ?? 0, items: answer.items.map(itemOf) };
  }

  /** Extends a lease. */
  extend(lease, options) {
    return this.call(`/leases/${lease}/extend`, {}, options);
  }

  /** Says how items of a lease ended. */
  acknowledge(lease, outcomes, releaseRest = false) {
    return this.call(`/leases/${lease}/acknowledge`, { outcomes, release_rest: releaseRest });
  }
}

/** A signal that is aborted with the first of two. */
function either(first, second) {
  if (AbortSignal.any) return AbortSignal.any([first, second]);
  const controller = new AbortController();
  for (const signal of [first, second]) {
    if (signal.aborted) controller.abort(signal.reason);
    else signal.addEventListener("abort", () => controller.abort(signal.reason), { once: true });
  }
  return controller.signal;
}

function itemOf({ id, attempt, payload, payload_base64, attributes = {}, content_type, trace_parent }) {
  const bytes = payload !== undefined ? Buffer.from(payload) : Buffer.from(payload_base64 ?? "", "base64");
  return { id, attempt, payload: bytes, attributes, contentType: content_type, traceParent: trace_parent };
}

/** Handles an item. Its outcome, as the daemon reads it. */
async function outcomeOf(handle, item, signal) {
  try {
    await handle(item, signal);
    return { id: item.id, outcome: "done" };
  } catch (error) {
    if (error instanceof Retry) {
      return { id: item.id, outcome: "retry", after_ms: error.after, reason: error.message };
    }
    if (error instanceof Release) return { id: item.id, outcome: "release" };
    if (error instanceof Dead) return { id: item.id, outcome: "dead", reason: error.message };
    console.error(`item ${item.id} failed:`, error);
    return { id: item.id, outcome: "retry", reason: String(error) };
  }
}

const sleep = (milliseconds, signal) =>
  new Promise((resolve) => {
    const over = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", over);
      resolve();
    };
    const timer = setTimeout(over, milliseconds);
    signal?.addEventListener("abort", over);
  });

/** Leases items and handles them, several at a time, until it is stopped. */
class Worker {
  /** `concurrency`: how many items are handled at a time. `batch`: the most items of one lease. `lease`: its length in milliseconds. */
  constructor(url, queue, handle, { concurrency = 1, batch = 10, lease, token } = {}) {
    this.client = new Client(url, queue, { token });
    Object.assign(this, { handle, concurrency, batch, length: lease, stopping: new AbortController() });
  }

  /** Lets it end: items that are being handled are finished, the others go back. */
  stop() {
    this.stopping.abort();
  }

  /** Works until it is stopped. Throws an ApiError if the daemon does not let this worker do so. */
  async run() {
    await Promise.all(Array.from({ length: this.concurrency }, () => this.#loop()));
    if (this.failure) throw this.failure;
  }

  async #loop() {
    const { signal } = this.stopping;
    let pause = PAUSES[0];
    while (!signal.aborted) {
      let leased;
      try {
        leased = await this.client.lease({ max: this.batch, wait: WAIT, lease: this.length, signal });
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof ApiError && error.status < 500 && ![408, 429].includes(error.status)) {
          this.failure = error;
          this.stop();
          return;
        }
        console.warn(`the daemon does not answer, trying again in ${pause} ms: ${causeOf(error)}`);
        await sleep(pause, signal);
        pause = Math.min(2 * pause, PAUSES[1]);
        continue;
      }
      pause = PAUSES[0];
      if (leased.lease) await this.#work(leased);
    }
  }

  /** Handles the items of a lease one after the other, and extends the lease meanwhile. */
  async #work({ lease, expiresIn, items }) {
    const over = new AbortController();
    const lost = new AbortController();
    const extending = this.#extend(lease, expiresIn / 3, over.signal, lost);
    let outcomes = [];
    let began = Date.now();
    for (const item of items) {
      if (this.stopping.signal.aborted || lost.signal.aborted) break;
      outcomes.push(await outcomeOf(this.handle, item, lost.signal));
      // The outcomes of long work are not kept back.
      if (Date.now() - began > 1_000 && item !== items.at(-1)) {
        await this.#acknowledge(lease, outcomes, false);
        [outcomes, began] = [[], Date.now()];
      }
    }
    over.abort();
    await extending;
    if (!lost.signal.aborted) await this.#acknowledge(lease, outcomes, true);
  }

  async #extend(lease, every, over, lost) {
    for (;;) {
      await sleep(every, over);
      if (over.aborted) return;
      try {
        await this.client.extend(lease, { timeout: Math.max(1_000, every) });
      } catch (error) {
        if (error.code === "lease_lost") {
          console.warn("a lease expired; its items are handled again");
          lost.abort();
          return;
        }
        console.warn(`cannot extend a lease: ${causeOf(error)}`);
      }
    }
  }

  async #acknowledge(lease, outcomes, isLast) {
    for (let attempt = 0, pause = PAUSES[0]; attempt < 8; attempt++, pause = Math.min(2 * pause, PAUSES[1])) {
      try {
        await this.client.acknowledge(lease, outcomes, isLast);
        return;
      } catch (error) {
        if (error.code === "lease_lost") {
          // After a failure, the call before may have acknowledged the last items.
          if (attempt === 0) console.warn("a lease expired before its items were acknowledged; they are handled again");
          return;
        }
        console.warn(`cannot acknowledge, trying again in ${pause} ms: ${causeOf(error)}`);
        await sleep(pause);
      }
    }
  }
}

/** What `fetch` says of a failed connection is in its cause. */
function causeOf(error) {
  return error.cause?.message || error.message;
}

/** Handles the items of a queue until SIGTERM or SIGINT. The options are those of Worker. */
async function work(url, queue, handle, options) {
  const worker = new Worker(url, queue, handle, options);
  const stop = () => worker.stop();
  process.once("SIGTERM", stop).once("SIGINT", stop);
  try {
    await worker.run();
  } finally {
    process.off("SIGTERM", stop).off("SIGINT", stop);
  }
}

module.exports = { ApiError, Client, Dead, Release, Retry, Worker, outcomeOf, work };
