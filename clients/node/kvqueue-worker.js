/**
 * Workers and pushes for kvqueue over HTTP. One file, no dependencies, Node 18 and later.
 *
 *     const { work } = require("./kvqueue-worker");
 *     await work("http://127.0.0.1:7420", "emails", async (item) => console.log(item.payload.toString()));
 *
 * docs/clients/node.md of kvqueue is the page about it. Times are in milliseconds.
 */
"use strict";

const http = require("node:http");
const https = require("node:https");
const { hostname } = require("node:os");
const { basename } = require("node:path");
const { Worker: Thread, parentPort, workerData } = require("node:worker_threads");

/** How long a daemon may take to accept a connection, and to answer a request. */
const [CONNECT, TIMEOUT] = [5_000, 30_000];
/** How long a daemon may take to answer a push that is repeated, so that the next one is asked in time. */
const PUSH_TIMEOUT = 10_000;
/** The longest answer in bytes. */
const LONGEST_ANSWER = 256 << 20;
/** The longest pause that a daemon may ask for. */
const RETRY_AFTER = 60_000;
/** The pause after an answer that had no items and did not wait for them, as those of a daemon that stops. */
const EMPTY_PAUSE = 1_000;
/** How long outcomes wait for others of their lease, so that one request acknowledges them together. */
const LINGER = 50;
/** A worker leases items ahead: as many as it handles in this time, by the average of the last ones. */
const AHEAD = 1_000;
/** Items that were leased ahead go back if their handling has not begun by then. */
const STUCK = 5_000;
/** The most outcomes in one request, so that their reasons fit into it, and the most characters of their results. */
const [MOST_OUTCOMES, MOST_RESULTS] = [100, 500_000];
/** The longest result in bytes. */
const LONGEST_RESULT = 90_000;
/** The most reports of progress in one request, so that they fit into it, and the longest message in bytes. */
const [MOST_REPORTS, LONGEST_MESSAGE] = [40, 200];
/** How long one request waits for the end of an item. */
const ITEM_WAIT = 20_000;
/** The most finished items that wait for their acknowledgement. With more, nothing is leased. */
const UNACKNOWLEDGED = 1_000;
/** How long a worker that stops tries to acknowledge. */
const STOP_PATIENCE = 30_000;
/** The longest pause between its attempts then. */
const STOP_PAUSE = 1_000;
/** The longest reason in characters, and the longest pause before a retry: a year. */
const [LONGEST_REASON, LONGEST_AFTER, LONGEST_THROTTLE] = [1_000, 365 * 24 * 3_600_000, 24 * 3_600_000];

/** What a daemon shows of this worker, in ASCII. */
const USER_AGENT = `kvqueue-node/0.1.0 ${hostname().replace(/[^!-~]/g, "?") || "?"}/${process.pid}`;

/** A daemon refused a request. `code` is one of the table in docs/API.md. */
class ApiError extends Error {
  constructor(status, code, message, retryAfter) {
    super(`${message} (${status} ${code})`);
    Object.assign(this, { name: "ApiError", status, code, retryAfter });
  }
}

/** There is no connection to the daemon, and nothing was sent. */
class Unreachable extends Error {}

/** Milliseconds of a clock that all threads share. */
const now = () => Number(process.hrtime.bigint()) / 1e6;

/** Whether another attempt, or another daemon, may help. */
const isTemporary = (error) => {
  if (!(error instanceof ApiError)) return error.name !== "AbortError";
  // A daemon may be read-only, and a proxy may refuse requests; another one need not.
  return ([403, 408, 429].includes(error.status) && !isDenied(error)) || error.status >= 500;
};

/** Whether the access token does not let this worker do so. */
const isDenied = (error) => error instanceof ApiError && (error.status === 401 || error.code === "forbidden");

function daemonOf(url, ca) {
  const options = { keepAlive: true, maxSockets: 8, ca };
  if (String(url).startsWith("unix:")) {
    return { url, module: http, agent: new http.Agent(options), target: { socketPath: String(url).slice(5) }, base: "" };
  }
  const { protocol, hostname, port, pathname } = new URL(url);
  if (!["http:", "https:"].includes(protocol)) {
    throw new TypeError(`${url} is not the URL of a daemon, such as http://127.0.0.1:7420 or unix:/run/kvqueue/http.sock`);
  }
  const module = protocol === "http:" ? http : https;
  const target = { hostname: hostname.replace(/^\[|\]$/g, ""), port };
  return { url, module, agent: new module.Agent(options), target, base: pathname.replace(/\/+$/, "") };
}

class Api {
  constructor({ urls, token, ca }) {
    this.token = token;
    this.daemons = urls.map((url) => daemonOf(url, ca));
    if (this.daemons.length === 0) throw new TypeError("there is no URL of a daemon");
    this.turn = 0;
  }

  /** Sends one request to the daemon whose turn it is. After a failure it is the next one's turn. */
  async call(path, body, { timeout = TIMEOUT, signal, method = "POST" } = {}) {
    const { turn } = this;
    try {
      return await this.exchange(this.daemons[turn], { path, body, timeout, signal, method });
    } catch (error) {
      if (isTemporary(error)) this.askNext(turn);
      throw error;
    }
  }

  /** Another request may have done so already. */
  askNext(turn) {
    if (this.turn === turn) this.turn = (turn + 1) % this.daemons.length;
  }

  /** Sends a request until a daemon answers, for `patience`. If an answer is lost, `isRepeatable` decides. */
  async ask(method, path, { body, isRepeatable, patience = TIMEOUT, timeout = isRepeatable ? PUSH_TIMEOUT : TIMEOUT }) {
    const pauses = new Pauses(this.daemons.length);
    const until = now() + patience;
    for (;;) {
      try {
        return await this.call(path, body, { timeout, method });
      } catch (error) {
        const isSafe = isRepeatable || error instanceof Unreachable || [403, 429].includes(error.status);
        const pause = pauses.next(error);
        if (!isSafe || !isTemporary(error) || now() + pause > until) throw error;
        await sleep(pause);
      }
    }
  }

  exchange({ url, module, agent, target, base }, { path, body: json, timeout, signal, method }) {
    const body = json === undefined ? Buffer.alloc(0) : Buffer.from(JSON.stringify(json));
    const headers = { "Content-Length": body.length, "User-Agent": USER_AGENT };
    if (json !== undefined) headers["Content-Type"] = "application/json";
    if (this.token) headers.Authorization = `Bearer ${this.token}`;
    return new Promise((resolve, reject) => {
      let isConnected = false;
      const options = { ...target, agent, headers, signal, method, path: `${base}/api/v1/queues/${path}` };
      const request = module.request(options, (response) => {
        const pieces = [];
        let size = 0;
        response.on("data", (piece) => {
          pieces.push(piece);
          size += piece.length;
          if (size > LONGEST_ANSWER) request.destroy(new Error(`the answer is longer than ${LONGEST_ANSWER} bytes`));
        });
        response.on("error", failed);
        response.on("end", () => {
          clearTimeout(limit);
          const text = Buffer.concat(pieces).toString();
          try {
            if (response.statusCode === 204) resolve({});
            else if (response.statusCode >= 200 && response.statusCode < 300) resolve(JSON.parse(text));
            else reject(this.refusal(response.statusCode, response.headers["retry-after"], text, { url, method, path }));
          } catch (error) {
            reject(error);
          }
        });
      });
      const limit = setTimeout(() => request.destroy(new Error(`no answer within ${timeout} ms`)), timeout);
      let connecting;
      const failed = (error) => {
        clearTimeout(limit);
        clearTimeout(connecting);
        const isSent = isConnected || error.name === "AbortError";
        reject(isSent ? error : new Unreachable(`cannot connect to ${url}: ${error.message || error.code}`, { cause: error }));
      };
      request.on("error", failed);
      request.on("socket", (socket) => {
        const connected = () => {
          isConnected = true;
          clearTimeout(connecting);
        };
        if (!socket.connecting) return connected();
        connecting = setTimeout(() => request.destroy(new Error(`no connection within ${CONNECT} ms`)), CONNECT);
        socket.once(module === https ? "secureConnect" : "connect", connected);
      });
      request.end(body);
    });
  }

  refusal(status, retryAfter, text, { url, method, path }) {
    let code = "unknown";
    let message = text.slice(0, 200);
    try {
      const { error } = JSON.parse(text);
      [code, message] = [error.code, `${error.message}; ${error.fix}`];
    } catch {
      // Another program has answered, such as a proxy.
    }
    if (status === 401 || code === "forbidden") {
      const secret = this.token.startsWith("kvq_") ? `the token ${this.token.slice(0, 12)}...` : "the token";
      message +=
        `; ${url} refuses ${this.token ? secret : "requests without a token"}; get one with 'kvqueue token new NAME` +
        ` --scope ${scopeOf(method, path)} --queue ${decodeURIComponent(path.split("/")[0])}', and give it as token or in KVQUEUE_TOKEN`;
    }
    return new ApiError(status, code, message, /^\d+$/.test(retryAfter ?? "") ? Number(retryAfter) * 1_000 : undefined);
  }

  close() {
    for (const { agent } of this.daemons) agent.destroy();
  }
}

/** The scope that a request needs. */
function scopeOf(method, path) {
  if (method === "GET") return "read";
  const [, kind, more] = path.split("/");
  if (kind === "lease" || kind === "leases") return "work";
  return method === "POST" && (kind === "batches" || (kind === "items" && more === undefined)) ? "push" : "admin";
}

/** How long a daemon may take to answer a request of a lease of this length. */
const keepTimeout = (length) => Math.min(Math.max(2_000, length / 3), TIMEOUT);

/** Extends leases, in a thread of its own that no handler can block. */
function extending({ daemons, queue }) {
  const api = new Api(daemons);
  const timers = new Map();
  /** What handlers have reported since the last extension: by lease, then by item. */
  const news = new Map();

  function schedule(lease, length, deadline, pause) {
    timers.set(lease, setTimeout(extend, pause, lease, length, deadline));
  }

  /** Takes some reports of a lease. */
  function reports(lease) {
    const found = [...(news.get(lease)?.values() ?? [])].slice(0, MOST_REPORTS);
    for (const { id } of found) news.get(lease).delete(id);
    return found;
  }

  async function extend(lease, length, deadline) {
    const asked = now();
    const progress = reports(lease);
    try {
      const body = progress.length > 0 ? { progress } : {};
      const { cancelled } = await api.call(`${queue}/leases/${lease}/extend`, body, { timeout: keepTimeout(length) });
      if (!timers.has(lease)) return;
      parentPort.postMessage({ what: "extended", lease, asked, cancelled });
      schedule(lease, length, asked + length, length / 3);
    } catch (error) {
      if (!timers.has(lease)) return;
      if (error.code === "lease_lost") {
        parentPort.postMessage({ what: "lost", lease });
      } else if (isDenied(error)) {
        parentPort.postMessage({ what: "refused", status: error.status, code: error.code, message: error.message });
      } else {
        // A report that the daemon refuses must not cost the lease.
        for (const each of isTemporary(error) ? progress : []) {
          if (!news.get(lease).has(each.id)) news.get(lease).set(each.id, each);
        }
        parentPort.postMessage({ what: "failed", lease, message: error.message });
        // An acknowledgement may have extended it: only the main thread knows, and ends the timer if none has.
        if (now() >= deadline) parentPort.postMessage({ what: "expired", lease });
        schedule(lease, length, deadline, Math.min(Math.max(100, length / 10), 1_000));
      }
    }
  }

  parentPort.on("message", ({ lease, length, began, report }) => {
    if (report !== undefined) {
      news.get(lease)?.set(report.id, report);
      return;
    }
    clearTimeout(timers.get(lease));
    timers.delete(lease);
    news.delete(lease);
    if (length === undefined) return;
    news.set(lease, new Map());
    schedule(lease, length, began + length, Math.max(0, began + length / 3 - now()));
  });
}

/** The item failed. It is tried again after some milliseconds, or by the queue's rules. */
class Retry extends Error {
  constructor(reason = "", { after } = {}) {
    super(reason);
    if (Number.isNaN(Number(after ?? 0))) throw new TypeError("after is not a number of milliseconds");
    this.after = after ?? undefined;
  }
}

/** The item goes back to the queue. The attempt does not count. */
class Release extends Error {}

/** A service asks for a pause: the item goes back, the attempt does not count, and no item of the scope starts for some milliseconds. */
class Throttle extends Error {
  constructor(reason, { after, scope = "key" }) {
    super(reason);
    if (!Number.isFinite(after)) throw new TypeError("after is not a number of milliseconds");
    if (!["key", "tenant", "queue"].includes(scope)) throw new TypeError('scope is not "key", "tenant" or "queue"');
    Object.assign(this, { after, scope });
  }
}

/** The item failed for good, and becomes a dead letter. */
class Dead extends Error {}

/** The reason of the signal of a handler whose item was cancelled. How the handler ends does not count. */
class Cancelled extends Error {
  constructor(message = "the item was cancelled") {
    super(message);
    this.name = "AbortError";
  }
}

/** The pauses between attempts: none until each daemon was asked, then growing ones. */
class Pauses {
  constructor(daemons) {
    Object.assign(this, { daemons, failures: 0 });
  }

  next(error) {
    this.failures++;
    if (this.failures % this.daemons) return 0;
    const rounds = this.failures / this.daemons;
    const pause = Math.min(100 * 2 ** Math.min(rounds - 1, 20), 10_000) * (0.5 + Math.random() / 2);
    return Math.round(Math.max(pause, Math.min(error.retryAfter ?? 0, RETRY_AFTER)));
  }
}

function daemonsOf(url, { token = process.env.KVQUEUE_TOKEN ?? "", ca } = {}) {
  // Files with a token end with a newline.
  token = token.trim();
  if (!/^[!-~]*$/.test(token)) {
    throw new TypeError("the token has a character that cannot be sent; give the token alone");
  }
  return { urls: [url].flat().map(String), token, ca };
}

/** Sends the next request of a client to the next daemon. */
let askNext;

/** The API of a daemon, or of several daemons of one database. After a failure the next daemon is asked. */
class Client {
  #api;

  static {
    askNext = (client) => client.#api.askNext(client.#api.turn);
  }

  constructor(url, options) {
    this.#api = new Api(daemonsOf(url, options));
  }

  /**
   * Pushes an item, which is stored durably when it resolves: an object (as JSON), a string, bytes, or `{ payload, ...options }`.
   *
   * It tries for `patience`. If the answer is lost, it repeats the push only with an idempotency key.
   */
  async push(queue, item, options) {
    return this.pushMany(queue, [item], options);
  }

  /** Pushes up to 1000 items in one transaction, as `push` does with one. */
  async pushMany(queue, items, { idempotencyKey, patience = TIMEOUT } = {}) {
    if (!Array.isArray(items)) throw new TypeError(`cannot push ${kindOf(items)} as several items; write pushMany(queue, [item])`);
    const body = { items: items.map(newItem), idempotency_key: idempotencyKey };
    return this.#api.ask("POST", `${encodeURIComponent(queue)}/items`, { body, isRepeatable: idempotencyKey !== undefined, patience });
  }

  /** An item, whatever it is doing. One that has ended is there if the queue keeps a history. The scope is `read`. */
  async showItem(queue, id) {
    return itemViewOf(await this.#api.ask("GET", itemPath(queue, id), { isRepeatable: true }));
  }

  /**
   * Waits until an item has ended or is a dead letter, for `wait` at most, and resolves with the item as it is then.
   *
   * Without a history of the queue, its result and its outcome are not known. The scope is `read`.
   */
  async waitItem(queue, id, { wait = 30_000 } = {}) {
    const until = now() + wait;
    for (let isKnown = false; ; isKnown = true) {
      const left = Math.max(0, until - now());
      const step = Math.min(left, ITEM_WAIT);
      const path = `${itemPath(queue, id)}?wait_ms=${Math.ceil(step)}`;
      let found;
      try {
        found = itemViewOf(await this.#api.ask("GET", path, { isRepeatable: true, timeout: step + PUSH_TIMEOUT }));
      } catch (error) {
        // It has ended between two requests.
        if (isKnown && error.code === "not_found") return itemViewOf({ id, state: "finished" });
        throw error;
      }
      if (found.hasEnded || step === left) return found;
    }
  }

  /** Cancels an item that has not ended, and resolves with the state that it had. The scope is `admin`. */
  async cancelItem(queue, id) {
    return (await this.#api.ask("POST", `${itemPath(queue, id)}/cancel`, {})).state_before;
  }

  /**
   * Makes a batch, and resolves with its id. When all items that were pushed to it have ended, `then` is pushed to `queue`; with a
   * deadline by then, whatever has ended. The scope is `push`.
   */
  async newBatch(queue, then, { deadline } = {}) {
    const body = { then: newItem(then), deadline_ms: deadline };
    return (await this.#api.ask("POST", `${encodeURIComponent(queue)}/batches`, { body })).id;
  }

  /**
   * Pushes `then` to `queue` when the items of `after` have ended, whichever way; each is an id, or `{ queue, id }` of another queue. Resolves with `id`,
   * that of the batch that waits for them, and how many it waits for, had ended, by outcome, and are not there. Without `missingOk` nothing is pushed if one
   * is not there. The scope is `push`, for the other queues, too.
   */
  async pushAfter(queue, then, after, { deadline, missingOk = false } = {}) {
    const others = after.map((each) => (typeof each === "string" ? { id: each } : { queue: each.queue, id: each.id }));
    const body = { then: newItem(then), after: others, deadline_ms: deadline, missing: missingOk ? "ended" : undefined };
    return inCamelCase(await this.#api.ask("POST", `${encodeURIComponent(queue)}/batches`, { body }));
  }

  /** Ends the pushes to a batch, so that it can call back. Whether it was not committed before. The scope is `push`. */
  async commitBatch(queue, batch) {
    return (await this.#api.ask("POST", `${batchPath(queue, batch)}/commit`, { isRepeatable: true })).changed;
  }

  /** A batch that has not called back. The scope is `read`. */
  async showBatch(queue, batch) {
    return inCamelCase(await this.#api.ask("GET", batchPath(queue, batch), { isRepeatable: true }));
  }

  /** The batches of a queue that have not called back. The scope is `read`. */
  listBatches(queue) {
    return this.#pages(`${encodeURIComponent(queue)}/batches`, "batches");
  }

  /** Removes a batch, and resolves with its counts. It does not call back, and its items go on. The scope is `admin`. */
  async cancelBatch(queue, batch) {
    return (await this.#api.ask("DELETE", batchPath(queue, batch), {})).counts;
  }

  /** The schedules of a queue, without their payloads. The scope is `read`. */
  listSchedules(queue) {
    return this.#pages(`${encodeURIComponent(queue)}/schedules`, "schedules");
  }

  /** A schedule, with its payload and its next five times. The scope is `read`. */
  async showSchedule(queue, name) {
    return inCamelCase(await this.#api.ask("GET", schedulePath(queue, name), { isRepeatable: true }));
  }

  /**
   * Makes a schedule, or replaces it whole: the items that it pushes, and `cron` (and `zone`) or `every`. With `create` also for a queue that is
   * nowhere yet: before its first push, if the daemon's configuration does not have it. The scope is `admin`.
   */
  async putSchedule(queue, name, { create = false, ...definition }) {
    const path = schedulePath(queue, name) + (create ? "?create=true" : "");
    return inCamelCase(await this.#api.ask("PUT", path, { body: definitionOf(definition), isRepeatable: true }));
  }

  /** Removes a schedule with its history; with `force` also one of a configuration. The scope is `admin`. */
  async removeSchedule(queue, name, { force = false } = {}) {
    await this.#api.ask("DELETE", schedulePath(queue, name) + (force ? "?force=true" : ""), {});
  }

  /** Pauses a schedule. The scope is `admin`. */
  async pauseSchedule(queue, name) {
    await this.#api.ask("POST", `${schedulePath(queue, name)}/pause`, { isRepeatable: true });
  }

  /** Lets a schedule go on. With `restart` it begins now, also if it is not paused. The scope is `admin`. */
  async resumeSchedule(queue, name, { restart = false } = {}) {
    const body = restart ? { restart } : undefined;
    await this.#api.ask("POST", `${schedulePath(queue, name)}/resume`, { body, isRepeatable: !restart });
  }

  /** Pushes an item of a schedule now. Its id; null if it is gone already. The scope is `admin`. */
  async fireSchedule(queue, name) {
    return (await this.#api.ask("POST", `${schedulePath(queue, name)}/fire`, {})).item;
  }

  /** What became of the times of a schedule, the newest first. The scope is `read`. */
  scheduleHistory(queue, name) {
    return this.#pages(`${schedulePath(queue, name)}/history`, "records");
  }

  /** The entries of all pages of a list. A page is asked for when it is needed. */
  async *#pages(path, name) {
    let query = "";
    for (;;) {
      const page = await this.#api.ask("GET", path + query, { isRepeatable: true });
      yield* page[name].map(inCamelCase);
      if (page.next === null) return;
      query = `?after=${encodeURIComponent(page.next)}`;
    }
  }

  /** Leases items. `lease` is null if nothing is ready. Its time began `waited` after the request was sent. */
  async lease(queue, { max = 1, wait = 0, lease, signal } = {}) {
    const body = { max, wait_ms: wait, lease_ms: lease };
    const answer = await this.#api.call(`${encodeURIComponent(queue)}/lease`, body, { timeout: wait + TIMEOUT, signal });
    const { lease: id, expires_in_ms: expiresIn = 0, waited_ms: waited } = answer;
    return { lease: id, expiresIn, waited, items: answer.items.map(itemOf) };
  }

  /** Extends a lease, and tells the daemon how far its items are. Resolves with the ids of its cancelled items. */
  async extend(queue, lease, { progress } = {}) {
    const path = `${encodeURIComponent(queue)}/leases/${lease}/extend`;
    return (await this.#api.call(path, { progress: progress?.map(reportOf) })).cancelled ?? [];
  }

  /** Acknowledges items of a lease. Resolves with the ids of its cancelled items, whose outcomes are passed over. */
  async acknowledge(queue, lease, outcomes, { releaseRest = false, timeout } = {}) {
    const body = { outcomes, release_rest: releaseRest };
    const path = `${encodeURIComponent(queue)}/leases/${lease}/acknowledge`;
    return (await this.#api.call(path, body, { timeout })).cancelled ?? [];
  }

  /** Closes idle connections. */
  close() {
    this.#api.close();
  }
}

const itemPath = (queue, id) => `${encodeURIComponent(queue)}/items/${encodeURIComponent(id)}`;
const batchPath = (queue, batch) => `${encodeURIComponent(queue)}/batches/${encodeURIComponent(batch)}`;
const schedulePath = (queue, name) => `${encodeURIComponent(queue)}/schedules/${encodeURIComponent(name)}`;

/** What a daemon has answered, with names as they are usual here. Attributes keep theirs. */
function inCamelCase(value) {
  if (Array.isArray(value)) return value.map(inCamelCase);
  if (typeof value !== "object" || value === null) return value;
  const renamed = ([name, its]) => [name.replace(/_(.)/g, (_, letter) => letter.toUpperCase()), name === "attributes" ? its : inCamelCase(its)];
  return Object.fromEntries(Object.entries(value).map(renamed));
}

function itemViewOf(answer) {
  const { payload, payload_base64, result, result_base64, key, key_base64, ...rest } = answer;
  const found = { ...inCamelCase(rest), hasEnded: ["finished", "dead"].includes(rest.state) };
  for (const [name, text, encoded] of [["payload", payload, payload_base64], ["result", result, result_base64], ["key", key, key_base64]]) {
    if (text !== undefined) found[name] = Buffer.from(text);
    else if (encoded !== undefined) found[name] = Buffer.from(encoded, "base64");
  }
  return found;
}

/** How far an item is, as a daemon reads it. */
function reportOf({ id, percent, message }) {
  if (Number.isNaN(Number(percent ?? 0))) throw new TypeError("percent is not a number");
  // Half a surrogate pair is no text for a daemon. The decoder leaves out a character that is cut.
  const bytes = message === undefined ? undefined : Buffer.from(String(message)).subarray(0, LONGEST_MESSAGE);
  const text = bytes && new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes, { stream: true });
  return { id, percent: percent === undefined ? undefined : Math.min(Math.max(Number(percent), 0), 100), message: text };
}

function definitionOf({ payload = "", key, every, missedWindow, jitter, contentType, missedMax, ...rest }) {
  const duration = (milliseconds) => (milliseconds === undefined ? undefined : `${Math.round(milliseconds)}ms`);
  return {
    ...rest,
    ...{ every: duration(every), missed_window: duration(missedWindow), jitter: duration(jitter) },
    ...{ content_type: contentType, missed_max: missedMax },
    ...payloadOf(payload),
    ...(key === undefined ? {} : textOrBase64("key", key, "the key is not a string or a Uint8Array")),
  };
}

/** An item as `push` takes it, as a daemon reads it. An object without a payload is the payload. */
function newItem(item) {
  if (Array.isArray(item)) {
    const fix = "write pushMany(queue, items), or { payload: items } for one item of JSON";
    throw new TypeError(`cannot push an array: it may be several items or one; ${fix}`);
  }
  const { payload, delay, at, ttl, unique, uniqueFor, replace, batch, attributes, contentType, traceParent, priority, key, ...unknown } =
    isPlainObject(item) && Object.hasOwn(item, "payload") ? item : { payload: item };
  const [wrong] = Object.keys(unknown);
  if (wrong !== undefined) {
    const fix = "if the object is the payload, write push(queue, { payload: object })";
    throw new TypeError(`an item has no option ${JSON.stringify(wrong)}; ${fix}`);
  }
  if (at !== undefined && !(at instanceof Date)) throw new TypeError(`at is ${kindOf(at)}; write a Date, as in new Date("2030-01-01T00:00:00Z")`);
  const rest = {
    ...{ unique, unique_for_ms: milliseconds("uniqueFor", uniqueFor), replace, batch, attributes, content_type: contentType },
    ...{ trace_parent: traceParent, priority, delay_ms: milliseconds("delay", delay), at: at?.toISOString(), ttl_ms: milliseconds("ttl", ttl) },
  };
  const keys = key === undefined ? {} : textOrBase64("key", key, "the key is not a string or a Uint8Array");
  return { ...payloadOf(payload), ...rest, ...keys };
}

function milliseconds(name, time) {
  if (time === undefined || Number.isFinite(time)) return time;
  throw new TypeError(`${name} is ${typeof time === "number" ? time : kindOf(time)}; write milliseconds as a number`);
}

/** A payload as a daemon reads it. A string and bytes are stored as they are. */
function payloadOf(payload) {
  if (Array.isArray(payload) || isPlainObject(payload)) return { payload: JSON.stringify(payload) };
  return textOrBase64("payload", payload, `the payload is ${kindOf(payload)}; write an object or an array (stored as JSON), a string, or a Uint8Array`);
}

function isPlainObject(value) {
  if (typeof value !== "object" || value === null) return false;
  const prototype = Object.getPrototypeOf(value);
  // Objects of another realm, as in a test runner, have a prototype of their own.
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

/** What a value is, for an error. */
function kindOf(value) {
  if (value === undefined || value === null) return String(value);
  const name = typeof value === "object" ? (value.constructor?.name ?? "object") : typeof value;
  return `a ${name}`;
}

function textOrBase64(name, value, wrong) {
  if (typeof value === "string") return { [name]: value };
  if (!(value instanceof Uint8Array)) throw new TypeError(wrong);
  try {
    return { [name]: new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(value) };
  } catch {
    return { [`${name}_base64`]: Buffer.from(value).toString("base64") };
  }
}

/** What items that a worker handles do with a report. */
const reporting = new WeakMap();

/** An item to be handled. */
class Item {
  /** Reports how far the handler is. The next extension of the lease has the last report; nothing waits for it. */
  reportProgress(percent, message) {
    const report = reportOf({ id: this.id, percent, message });
    reporting.get(this)?.(report);
  }
}

function itemOf({ id, attempt, payload, payload_base64, attributes = {}, content_type, trace_parent, key, key_base64 }) {
  const bytes = payload !== undefined ? Buffer.from(payload) : Buffer.from(payload_base64 ?? "", "base64");
  const found = { id, attempt, payload: bytes, attributes, contentType: content_type, traceParent: trace_parent };
  const item = Object.assign(new Item(), found);
  if (key !== undefined || key_base64 !== undefined) item.key = key !== undefined ? Buffer.from(key) : Buffer.from(key_base64, "base64");
  return item;
}

/** What a handler has returned, as a daemon reads it. Something else than text and bytes is no result. */
function resultOf(id, returned, log) {
  // Half a surrogate pair is no text for a daemon. A buffer replaces it.
  const result = typeof returned === "string" ? Buffer.from(returned) : returned;
  if (!(result instanceof Uint8Array)) return {};
  if (result.length <= LONGEST_RESULT) return textOrBase64("result", result);
  log(`item ${id}: its result has ${result.length} bytes, and ${LONGEST_RESULT} are allowed; it is not kept`);
  return {};
}

/** The outcomes of the next request. */
function nextOutcomes(outcomes) {
  let size = 0;
  const isTooMuch = ({ result = "", result_base64 = "" }) => (size += result.length + result_base64.length) > MOST_RESULTS;
  const some = outcomes.slice(0, MOST_OUTCOMES);
  const end = some.findIndex(isTooMuch);
  return end < 0 ? some : some.slice(0, Math.max(1, end));
}

/** Takes the results of outcomes away. Whether there were any. */
function dropResults(outcomes) {
  const have = outcomes.filter((each) => "result" in each || "result_base64" in each);
  for (const each of have) {
    delete each.result;
    delete each.result_base64;
  }
  return have.length > 0;
}

/** The outcome of a handler that has thrown an error, as a daemon reads it. */
function outcomeOf(id, error, log) {
  if (error instanceof Release) return { id, outcome: "release" };
  const isKnown = [Retry, Dead, Throttle].some((it) => error instanceof it);
  const reason = reasonOf(isKnown ? error.message : error);
  if (error instanceof Dead) return { id, outcome: "dead", reason };
  if (error instanceof Throttle) {
    return { id, outcome: "throttle", reason, scope: error.scope, after_ms: Math.round(Math.min(Math.max(error.after, 0), LONGEST_THROTTLE)) };
  }
  if (!(error instanceof Retry)) log(`item ${id} failed`, error);
  const after = error instanceof Retry ? error.after : undefined;
  return { id, outcome: "retry", reason, after_ms: after === undefined ? undefined : Math.round(Math.min(Math.max(after, 0), LONGEST_AFTER)) };
}

function reasonOf(error) {
  let text;
  try {
    text = String(error);
  } catch {
    text = "the error has no text";
  }
  // Half a surrogate pair is no text for a daemon. A buffer replaces it, also the one where the text is cut.
  return Buffer.from(text.slice(0, LONGEST_REASON)).toString();
}

function sleep(milliseconds, signal) {
  return new Promise((resolve) => {
    const over = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", over);
      resolve();
    };
    const timer = setTimeout(over, milliseconds);
    signal?.addEventListener("abort", over);
    if (signal?.aborted) over();
  });
}

/** Wakes a loop that waits for something to do. */
class News {
  #wake = () => {};

  wait(milliseconds) {
    return new Promise((resolve) => {
      const timer = milliseconds === undefined ? undefined : setTimeout(resolve, milliseconds);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  notify() {
    this.#wake();
  }
}

/** Leases items and handles them, several at a time, until it is stopped. */
class Worker {
  #handle;
  #options;
  #queue;
  #daemons;
  #log;
  #client;
  #acknowledger;
  #thread;
  #failure;
  #stopping = new AbortController();
  #stoppedAt = 0;
  #room = new News();
  /** Items that no handler has begun with, each with its lease. */
  #waiting = [];
  #running = 0;
  /**
   * By their ids. A lease has its items without an outcome (`unfinished`, by their ids, each with the handler's AbortController if that has
   * begun), outcomes to be acknowledged, and the number of both (`open`).
   */
  #leases = new Map();
  /** How long a handler takes on average; undefined before the first item. */
  #average;
  /** Whether the log says that a handler returns what is no result. */
  #hasWarned = false;

  /**
   * `concurrency` items are handled at a time. `batch` is the most items of a lease; a worker leases as many as it
   * handles in about a second. `lease` is the length of a lease, by default the queue's. `wait` is how long a
   * request for items waits at the daemon. `log` gets warnings.
   */
  constructor(url, queue, handle, { concurrency = 1, batch = 100, lease, wait = 20_000, token, ca, log = console.warn } = {}) {
    if (!(concurrency >= 1) || !(batch >= 1 && batch <= 1_000)) {
      throw new RangeError("concurrency is 1 or more, and batch is 1 to 1000");
    }
    this.#handle = handle;
    this.#options = { concurrency, batch, lease, wait };
    this.#queue = queue;
    this.#daemons = daemonsOf(url, { token, ca });
    this.#log = log;
    this.#client = new Client(url, { token, ca });
    this.#acknowledger = new Client(url, { token, ca });
  }

  /** Lets the worker end: running items are finished, and the others go back. */
  stop() {
    this.#stoppedAt = now();
    this.#stopping.abort();
    this.#giveBack();
    this.#room.notify();
    for (const lease of this.#leases.values()) lease.changed.notify();
  }

  /** Works until it is stopped. Rejects with an ApiError if the daemon does not let this worker do so. */
  async run() {
    this.#startThread();
    try {
      await this.#fetch().catch((error) => this.#fail(error));
      // Also for handlers whose leases are lost.
      while (this.#running > 0 || this.#leases.size > 0) await this.#room.wait();
    } finally {
      await this.#thread.terminate();
      this.#client.close();
      this.#acknowledger.close();
    }
    if (this.#failure) throw this.#failure;
  }

  /** The worker stops, and ends with an error. */
  #fail(error) {
    this.#failure ??= error;
    this.stop();
  }

  /** The worker ends with an error that keeps it from acknowledging. What it has leased comes back when the leases expire. */
  #abandon(error) {
    this.#fail(error);
    for (const lease of [...this.#leases.values()]) this.#forget(lease);
  }

  #startThread() {
    if (!basename(__filename).startsWith("kvqueue-worker.")) {
      throw new Error("kvqueue-worker.js has to be a file of its own with this name, not a part of a bundle: a thread runs it");
    }
    const kvqueueExtending = { daemons: this.#daemons, queue: encodeURIComponent(this.#queue) };
    this.#thread = new Thread(__filename, { workerData: { kvqueueExtending }, execArgv: [] });
    this.#thread.on("error", (error) => this.#abandon(error));
    this.#thread.on("message", (found) => {
      const lease = this.#leases.get(found.lease);
      if (found.what === "extended" && lease) {
        lease.deadline = found.asked + lease.length;
        this.#cancelItems(lease, found.cancelled ?? []);
      }
      if (found.what === "failed") this.#log(`queue ${this.#queue}: lease ${found.lease}: cannot extend it: ${found.message}`);
      // An acknowledgement may have extended it meanwhile.
      if (found.what === "expired" && lease && now() >= lease.deadline) this.#expire(lease);
      // If its last acknowledgement is under way, the answer to that acknowledgement decides.
      if (found.what === "lost" && lease && !lease.isEnding) {
        this.#expire(lease);
        this.#forget(lease);
      }
      if (found.what === "refused") {
        const error = new ApiError(found.status, found.code, "");
        error.message = found.message;
        this.#abandon(error);
      }
    });
  }

  async #fetch() {
    const { signal } = this.#stopping;
    const { wait, lease: length } = this.#options;
    const pauses = new Pauses(this.#daemons.urls.length);
    for (;;) {
      const max = await this.#wanted();
      if (max === 0) return;
      const asked = now();
      let found;
      try {
        found = await this.#client.lease(this.#queue, { max, wait, lease: length, signal });
      } catch (error) {
        if (signal.aborted) return;
        if (!isTemporary(error)) throw error;
        const pause = pauses.next(error);
        this.#log(`cannot lease items, trying again in ${pause} ms: ${error.message}`);
        await sleep(pause, signal);
        continue;
      }
      pauses.failures = 0;
      if (found.lease !== null) {
        this.#add(found, asked);
      } else if (now() - asked < Math.min(1_000, Math.max(100, wait / 2))) {
        askNext(this.#client);
        await sleep(EMPTY_PAUSE, signal);
      }
    }
  }

  /** How many items to lease, when there is room for some. 0 when the worker stops. */
  async #wanted() {
    const { concurrency, batch } = this.#options;
    while (!this.#stopping.signal.aborted) {
      const average = Math.max(this.#average ?? Infinity, 0.001);
      const ahead = Math.min(batch, Math.floor((concurrency * AHEAD) / average));
      const room = Math.max(0, concurrency - this.#running) + ahead;
      const have = this.#waiting.length;
      let finished = 0;
      for (const { outcomes } of this.#leases.values()) finished += outcomes.length;
      if (finished < UNACKNOWLEDGED && have < room && have * 2 <= room) return Math.min(batch, room - have);
      await this.#room.wait();
    }
    return 0;
  }

  #add({ lease: id, expiresIn: length, waited, items }, asked) {
    // A handler may have blocked this thread for long since the answer came. A daemon of an earlier version does not
    // tell how long the request has waited.
    const came = now();
    const began = waited === undefined ? came : asked + waited;
    const lease = {
      id,
      length,
      came,
      deadline: began + length,
      unfinished: new Map(items.map((item) => [item.id, {}])),
      outcomes: [],
      since: 0,
      get open() {
        return this.unfinished.size + this.outcomes.length;
      },
      changed: new News(),
      isLost: false,
    };
    this.#leases.set(id, lease);
    this.#acknowledge(lease).catch((error) => this.#abandon(error));
    this.#thread.postMessage({ lease: id, length, began });
    for (const item of items) {
      reporting.set(item, (report) => this.#thread.postMessage({ lease: id, report }));
      this.#waiting.push({ lease, item });
    }
    if (this.#stopping.signal.aborted) return this.#giveBack();
    this.#begin();
    // The running items may take longer than expected.
    if (this.#waiting.length > 0) setTimeout(() => this.#giveBack(now() - STUCK), STUCK + 1).unref();
  }

  /** Releases items that no handler has begun with, if they were leased before some time. */
  #giveBack(before = Infinity) {
    while (this.#waiting.length > 0 && this.#waiting[0].lease.came <= before) {
      const { lease, item } = this.#waiting.shift();
      if (before !== Infinity) this.#average = Math.max(this.#average ?? 0, STUCK);
      this.#record(lease, { id: item.id, outcome: "release" });
    }
  }

  /** Starts as many handlers as may run. */
  #begin() {
    while (this.#running < this.#options.concurrency && this.#waiting.length > 0) {
      const { lease, item } = this.#waiting.shift();
      if (now() < lease.deadline && !lease.isLost) this.#work(lease, item);
      // Another worker may have it by now.
      else this.#record(lease, { id: item.id, outcome: "release" });
    }
    this.#room.notify();
  }

  async #work(lease, item) {
    this.#running++;
    const began = now();
    const controller = new AbortController();
    lease.unfinished.set(item.id, { controller });
    const { signal } = controller;
    let outcome;
    try {
      outcome = { id: item.id, outcome: "done", ...this.#result(item, await this.#handle(item, signal)) };
    } catch (error) {
      // A handler that has been aborted is not the item's fault.
      const isAborted = signal.reason instanceof Cancelled || (signal.aborted && error?.name === "AbortError");
      outcome = isAborted ? { id: item.id, outcome: "release" } : outcomeOf(item.id, error, this.#log);
    }
    const took = now() - began;
    this.#running--;
    this.#average = this.#average === undefined ? took : this.#average + (took - this.#average) / 8;
    this.#record(lease, outcome);
    this.#begin();
  }

  #result(item, returned) {
    if (returned !== undefined && returned !== null && typeof returned !== "string" && !(returned instanceof Uint8Array) && !this.#hasWarned) {
      this.#hasWarned = true;
      this.#log(`item ${item.id}: the handler has returned a value that is ignored: a result is a string or a Uint8Array`);
    }
    return resultOf(item.id, returned, this.#log);
  }

  /** Keeps an outcome to be acknowledged, unless its item was cancelled. */
  #record(lease, outcome) {
    if (!this.#leases.has(lease.id) || !lease.unfinished.delete(outcome.id)) return;
    if (lease.outcomes.length === 0) lease.since = now();
    lease.outcomes.push(outcome);
    lease.changed.notify();
  }

  /**
   * Tells the handlers that other workers may have the items of a lease. Its outcomes are still tried: they count if no
   * daemon has noticed.
   */
  #expire(lease) {
    if (lease.isLost) return;
    this.#log(`queue ${this.#queue}: lease ${lease.id} expired; its unacknowledged items will be redelivered`);
    this.#thread.postMessage({ lease: lease.id });
    this.#endHandlers(lease);
  }

  /** Ends a lease: all of its items are acknowledged, or the lease is lost. */
  #forget(lease) {
    if (!this.#leases.delete(lease.id)) return;
    this.#thread.postMessage({ lease: lease.id });
    if (lease.open > 0) this.#endHandlers(lease);
    lease.changed.notify();
    this.#room.notify();
  }

  /** Aborts the handlers of a lease, and releases the items that none has begun with. */
  #endHandlers(lease) {
    const waiting = this.#waiting.filter((each) => each.lease === lease);
    this.#waiting = this.#waiting.filter((each) => each.lease !== lease);
    for (const { item } of waiting) this.#record(lease, { id: item.id, outcome: "release" });
    lease.isLost = true;
    for (const { controller } of lease.unfinished.values()) controller?.abort();
    this.#room.notify();
  }

  /** Aborts the handlers of cancelled items, which are no part of the lease any more. */
  #cancelItems(lease, ids) {
    for (const id of ids) {
      const found = lease.unfinished.get(id);
      lease.unfinished.delete(id);
      found?.controller?.abort(new Cancelled());
    }
    if (ids.length === 0) return;
    this.#waiting = this.#waiting.filter((each) => each.lease !== lease || lease.unfinished.has(each.item.id));
    if (lease.open === 0) this.#forget(lease);
    lease.changed.notify();
    this.#room.notify();
  }

  /** Acknowledges the outcomes of a lease, until none of its items is left. No other lease waits for it. */
  async #acknowledge(lease) {
    const pauses = new Pauses(this.#daemons.urls.length);
    let failingSince;
    while (this.#leases.has(lease.id)) {
      const pause = this.#untilDue(lease);
      if (!(pause <= 0)) {
        await lease.changed.wait(pause);
        continue;
      }
      const outcomes = nextOutcomes(lease.outcomes);
      const asked = now();
      lease.isEnding = outcomes.length === lease.open;
      try {
        const cancelled = await this.#acknowledger.acknowledge(this.#queue, lease.id, outcomes, { timeout: keepTimeout(lease.length) });
        this.#acknowledged(lease, outcomes.length, asked);
        this.#cancelItems(lease, cancelled);
        pauses.failures = 0;
      } catch (error) {
        if (isDenied(error)) throw error;
        if (pauses.failures === 0) failingSince = asked;
        const isLate = this.#stopping.signal.aborted && asked - Math.max(failingSince, this.#stoppedAt) > STOP_PATIENCE;
        if (error.code === "lease_lost") {
          // After a failure: an earlier request may have acknowledged the last items.
          if (!(pauses.failures > 0 && lease.isEnding)) this.#expire(lease);
          this.#forget(lease);
        } else if (error.status === 413 && dropResults(outcomes)) {
          this.#log(`queue ${this.#queue}: lease ${lease.id}: its results are not kept: ${error.message}`);
        } else if (isLate || !isTemporary(error)) {
          const what = `cannot acknowledge ${outcomes.length} items; they will be redelivered`;
          this.#log(`queue ${this.#queue}: lease ${lease.id}: ${what}: ${error.message}`);
          this.#forget(lease);
        } else {
          const pause = pauses.next(error);
          this.#log(`queue ${this.#queue}: lease ${lease.id}: cannot acknowledge, trying again in ${pause} ms: ${error.message}`);
          const until = now() + pause;
          await sleep(pause, this.#stopping.signal);
          // At a stop the rest of the pause is short.
          await sleep(Math.min(Math.max(0, until - now()), STOP_PAUSE));
        }
      }
    }
  }

  /** How long the outcomes of a lease wait for others; undefined without outcomes. */
  #untilDue({ outcomes, open, since }) {
    if (outcomes.length === 0) return undefined;
    const isFull = outcomes.length === open || outcomes.length >= MOST_OUTCOMES;
    return isFull || this.#stopping.signal.aborted ? 0 : since + LINGER - now();
  }

  #acknowledged(lease, count, asked) {
    lease.outcomes.splice(0, count);
    lease.since = now();
    lease.deadline = asked + lease.length;
    if (lease.open === 0) this.#forget(lease);
    this.#room.notify();
  }
}

/**
 * Handles the items of a queue until SIGTERM or SIGINT. The options are those of Worker.
 *
 * The first signal lets running items finish and gives the others back. A second one ends the program at once.
 */
async function work(url, queue, handle, options) {
  const worker = new Worker(url, queue, handle, options);
  const release = () => process.off("SIGTERM", stop).off("SIGINT", stop);
  const stop = () => {
    release();
    worker.stop();
  };
  process.on("SIGTERM", stop).on("SIGINT", stop);
  try {
    await worker.run();
  } finally {
    release();
  }
}

module.exports = { ApiError, Cancelled, Client, Dead, Release, Retry, Throttle, Unreachable, Worker, work };

// This file is also the program of the thread.
if (workerData?.kvqueueExtending) extending(workerData.kvqueueExtending);
