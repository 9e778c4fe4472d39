/** Workers and pushes for kvqueue over HTTP. Times are in milliseconds. */

/// <reference types="node" />

/** An item to be handled. */
export interface Item {
  readonly id: string;
  readonly attempt: number;
  readonly payload: Buffer;
  readonly attributes: Readonly<Record<string, string>>;
  readonly contentType?: string;
  readonly traceParent?: string;
  /** Its key, in a keyed queue. */
  readonly key?: Buffer;
  /**
   * Reports how far the handler is: a percentage, and a message of up to 200 bytes. The next extension of the lease has the last report;
   * nothing waits for it.
   */
  reportProgress(percent?: number, message?: string): void;
}

/** What an item carries. An object or an array is stored as JSON; a string and bytes are stored as they are. */
export type Payload = string | Uint8Array | Record<string, unknown> | readonly unknown[];

/** An item to be pushed. */
export interface NewItem {
  payload: Payload;
  delay?: number;
  at?: Date;
  /** It expires if no attempt has begun within so many milliseconds; without it the queue's own time holds. */
  ttl?: number;
  /** The item's unique key: with another item of this key, nothing is pushed. */
  unique?: string;
  /** Its unique key is taken for this time, whether or not it has ended by then. */
  uniqueFor?: number;
  /** An item that waits under its unique key gets what is pushed. */
  replace?: boolean;
  /** The id of a batch that it becomes a member of. */
  batch?: string;
  attributes?: Record<string, string>;
  contentType?: string;
  traceParent?: string;
  priority?: number;
  /** Its key, in a keyed queue. */
  key?: string | Uint8Array;
}

/** The result of a push: how many items were added, and the id and effect of each. */
export interface Pushed {
  pushed: number;
  ids: (string | null)[];
  effects: ("added" | "duplicate" | "replaced" | "repeated")[];
  /** Whether a push with this idempotency key was done before. */
  already: boolean;
}

/** An item, whatever it is doing. Further fields are those of the HTTP API, with names such as `enqueuedAt`. */
export interface ItemView {
  id: string;
  state: "ready" | "scheduled" | "retrying" | "running" | "dead" | "finished";
  /** Whether it has ended, or is a dead letter. */
  hasEnded: boolean;
  /** How it ended, if the queue keeps a history. */
  outcome?: "done" | "dead" | "cancelled" | "expired" | "taken" | "unknown";
  payload?: Buffer;
  /** What its handler returned. */
  result?: Buffer;
  key?: Buffer;
  /** How far its handler is, if it is running. `at` is when the handler reported that. */
  progress?: { at: string; percent?: number; message?: string };
  attempts?: number;
  reason?: string;
  attributes?: Record<string, string>;
  [more: string]: unknown;
}

/** The members of a batch: all, the open ones, and how the others ended. */
export interface BatchCounts {
  members: number;
  open: number;
  done: number;
  dead: number;
  cancelled: number;
  expired: number;
  taken: number;
}

/** A batch that has not called back. Times are in RFC 3339. */
export interface Batch {
  id: string;
  queue?: string;
  state: "open" | "committed";
  created: string;
  committed?: string;
  deadline?: string;
  counts: BatchCounts;
  then: { payload?: string; payloadBase64?: string; attributes?: Record<string, string>; [more: string]: unknown };
}

/** What `push` takes: an item with its options, or a payload alone. An object that has a `payload` is an item. */
export type Pushable = string | Uint8Array | NewItem | ({ payload?: never } & Record<string, unknown>);

/** What a batch pushes in the end. */
export type Callback = string | Uint8Array | ({ payload?: never } & Record<string, unknown>) | Pick<NewItem, "payload" | "attributes" | "contentType" | "priority" | "key">;

/** When a schedule fires (`cron` and perhaps `zone`, or `every`), and what it pushes. */
export interface ScheduleDefinition {
  cron?: string;
  zone?: string;
  every?: number;
  payload?: Payload;
  attributes?: Record<string, string>;
  contentType?: string;
  key?: string | Uint8Array;
  priority?: number;
  missed?: "skip" | "once" | "all";
  missedWindow?: number;
  missedMax?: number;
  overlap?: "allow" | "skip" | "queue";
  jitter?: number;
}

/** A time that a calendar gives, and the same with the jitter. */
export interface Firing {
  time: string;
  firesAt: string;
}

/** A schedule. `times`, its next ones, and its payload are there if it was asked for by its name. */
export interface Schedule {
  queue: string;
  name: string;
  state: "active" | "overdue" | "paused" | "waiting" | "unreadable";
  description?: string;
  owner?: string | null;
  definition?: Record<string, unknown>;
  next?: Firing | null;
  last?: { time: string; item: string } | null;
  occurrences?: number;
  times?: Firing[];
  [more: string]: unknown;
}

/** What became of one time of a schedule, or of several in a row. */
export interface Occurrence {
  number: number;
  at: string;
  from: string;
  to: string;
  count: number;
  exact: boolean;
  outcome: "fired" | "fired_by_hand" | "skipped" | "missed" | "unknown";
  reason?: string;
  occurrence?: number;
  item?: string | null;
}

/** How a worker ends an item of a lease. */
export type Outcome =
  | { id: string; outcome: "release" }
  | { id: string; outcome: "done"; result?: string; result_base64?: string }
  | { id: string; outcome: "dead"; reason?: string }
  | { id: string; outcome: "retry"; reason?: string; after_ms?: number }
  | { id: string; outcome: "throttle"; reason?: string; scope?: Scope; after_ms: number };

/** What waits: the item's key, all keys with the same text before the first slash, or the queue. */
export type Scope = "key" | "tenant" | "queue";

export interface Access {
  /** An access token, by default the one in KVQUEUE_TOKEN. */
  token?: string;
  /** Certificates to trust for https, in PEM, by default Node's. */
  ca?: string | Buffer | (string | Buffer)[];
}

export interface Options extends Access {
  /** How many items are handled at a time: 1 by default. */
  concurrency?: number;
  /** The most items of a lease, 1 to 1000: 100 by default. A worker leases as many as it handles in about a second. */
  batch?: number;
  /** The length of a lease, by default the queue's. */
  lease?: number;
  /** How long a request for items waits at the daemon: 20,000 by default. */
  wait?: number;
  /** Gets warnings: `console.warn` by default. */
  log?: (message: string, error?: unknown) => void;
}

/** A URL such as "http://127.0.0.1:7420" or "unix:/run/kvqueue/http.sock", or several of daemons of one database. */
export type Url = string | URL | readonly (string | URL)[];

/**
 * Handles an item. A string or a Uint8Array of up to 90,000 bytes that it returns is the item's result. What it throws is a retry, unless it
 * is Retry, Release, Throttle or Dead. The signal is aborted if the lease has expired: then another worker may handle the item. It is also
 * aborted, with the reason Cancelled, if the item was cancelled.
 */
export type Handler = (item: Item, signal: AbortSignal) => unknown;

/** The item failed. It is tried again after some milliseconds, or by the queue's rules. */
export class Retry extends Error {
  constructor(reason?: string, options?: { after?: number });
  readonly after?: number;
}

/** The item goes back to the queue. The attempt does not count. */
export class Release extends Error {}

/** A service asks for a pause: the item goes back, the attempt does not count, and no item of the scope starts for some milliseconds. */
export class Throttle extends Error {
  constructor(reason: string, options: { after: number; scope?: Scope });
  readonly after: number;
  readonly scope: Scope;
}

/** The item failed for good, and becomes a dead letter. */
export class Dead extends Error {}

/** The reason of the signal of a handler whose item was cancelled. How the handler ends does not count. */
export class Cancelled extends Error {}

/** A daemon refused a request. `code` is one of the table in docs/API.md. */
export class ApiError extends Error {
  constructor(status: number, code: string, message: string, retryAfter?: number);
  readonly status: number;
  readonly code: string;
  readonly retryAfter?: number;
}

/** There is no connection to the daemon, and nothing was sent. */
export class Unreachable extends Error {}

/** The API of a daemon, or of several daemons of one database. After a failure the next daemon is asked. */
export class Client {
  constructor(url: Url, options?: Access);
  /**
   * Pushes an item, which is stored durably when it resolves. It tries for `patience`, 30,000 by default. If the answer is lost,
   * it repeats the push only with an idempotency key.
   */
  push(queue: string, item: Pushable, options?: { idempotencyKey?: string; patience?: number }): Promise<Pushed>;
  /** Pushes up to 1000 items in one transaction, as `push` does with one. */
  pushMany(queue: string, items: readonly Pushable[], options?: { idempotencyKey?: string; patience?: number }): Promise<Pushed>;
  /** Leases items. `lease` is null if nothing is ready. */
  lease(
    queue: string,
    options?: { max?: number; wait?: number; lease?: number; signal?: AbortSignal },
  ): Promise<{ lease: string | null; expiresIn: number; waited?: number; items: Item[] }>;
  /** Extends a lease, and tells the daemon how far its items are. Resolves with the ids of its cancelled items. */
  extend(queue: string, lease: string, options?: { progress?: readonly { id: string; percent?: number; message?: string }[] }): Promise<string[]>;
  /** Acknowledges items of a lease. Resolves with the ids of its cancelled items, whose outcomes are passed over. */
  acknowledge(queue: string, lease: string, outcomes: readonly Outcome[], options?: { releaseRest?: boolean; timeout?: number }): Promise<string[]>;
  /** An item, whatever it is doing. One that has ended is there if the queue keeps a history. The scope is `read`. */
  showItem(queue: string, id: string): Promise<ItemView>;
  /**
   * Waits until an item has ended or is a dead letter, for `wait` at most (30,000 by default), and resolves with the item as it is then.
   * Without a history of the queue, its result and its outcome are not known. The scope is `read`.
   */
  waitItem(queue: string, id: string, options?: { wait?: number }): Promise<ItemView>;
  /** Cancels an item that has not ended, and resolves with the state that it had. The scope is `admin`. */
  cancelItem(queue: string, id: string): Promise<ItemView["state"]>;
  /**
   * Makes a batch, and resolves with its id. When all items that were pushed to it have ended, `then` is pushed to `queue`; with a deadline
   * by then, whatever has ended. The scope is `push`.
   */
  newBatch(queue: string, then: Callback, options?: { deadline?: number }): Promise<string>;
  /**
   * Pushes `then` to `queue` when the items of `after` have ended, whichever way; each is an id, or one of another queue. Resolves with `id`, that of the
   * batch that waits for them, and how many it waits for, had ended, by outcome, and are not there. Without `missingOk` nothing is pushed if one is not
   * there. The scope is `push`, for the other queues, too.
   */
  pushAfter(
    queue: string,
    then: Callback,
    after: readonly (string | { queue: string; id: string })[],
    options?: { deadline?: number; missingOk?: boolean },
  ): Promise<{ id: string; waitsFor: number; ended: Record<string, number>; gone: number }>;
  /** Ends the pushes to a batch, so that it can call back. Whether it was not committed before. The scope is `push`. */
  commitBatch(queue: string, batch: string): Promise<boolean>;
  /** A batch that has not called back. The scope is `read`. */
  showBatch(queue: string, batch: string): Promise<Batch>;
  /** The batches of a queue that have not called back. The scope is `read`. */
  listBatches(queue: string): AsyncGenerator<Batch, void, undefined>;
  /** Removes a batch, and resolves with its counts. It does not call back, and its items go on. The scope is `admin`. */
  cancelBatch(queue: string, batch: string): Promise<BatchCounts>;
  /** The schedules of a queue, without their payloads. The scope is `read`. */
  listSchedules(queue: string): AsyncGenerator<Schedule, void, undefined>;
  /** A schedule, with its payload and its next five times. The scope is `read`. */
  showSchedule(queue: string, name: string): Promise<Schedule>;
  /**
   * Makes a schedule, or replaces it whole. With `create` also for a queue that is nowhere yet: before its first push, if the daemon's
   * configuration does not have it. The scope is `admin`.
   */
  putSchedule(
    queue: string,
    name: string,
    definition: ScheduleDefinition & { create?: boolean },
  ): Promise<{ effect: "created" | "replaced" | "unchanged"; description: string; next: Firing | null }>;
  /** Removes a schedule with its history; with `force` also one of a configuration. The scope is `admin`. */
  removeSchedule(queue: string, name: string, options?: { force?: boolean }): Promise<void>;
  /** Pauses a schedule. The scope is `admin`. */
  pauseSchedule(queue: string, name: string): Promise<void>;
  /** Lets a schedule go on. With `restart` it begins now, also if it is not paused. The scope is `admin`. */
  resumeSchedule(queue: string, name: string, options?: { restart?: boolean }): Promise<void>;
  /** Pushes an item of a schedule now. Its id; null if it is gone already. The scope is `admin`. */
  fireSchedule(queue: string, name: string): Promise<string | null>;
  /** What became of the times of a schedule, the newest first. The scope is `read`. */
  scheduleHistory(queue: string, name: string): AsyncGenerator<Occurrence, void, undefined>;
  /** Closes idle connections. */
  close(): void;
}

/** Leases items and handles them, several at a time, until it is stopped. */
export class Worker {
  constructor(url: Url, queue: string, handle: Handler, options?: Options);
  /** Lets the worker end: running items are finished, and the others go back. */
  stop(): void;
  /** Works until it is stopped. Rejects with an ApiError if the daemon does not let this worker do so. */
  run(): Promise<void>;
}

/**
 * Handles the items of a queue until SIGTERM or SIGINT.
 *
 * The first signal lets running items finish and gives the others back. A second one ends the program at once.
 */
export function work(url: Url, queue: string, handle: Handler, options?: Options): Promise<void>;
