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
}

/** An item to be pushed. */
export interface NewItem {
  payload: string | Uint8Array;
  delay?: number;
  at?: Date;
  /** It expires if no attempt has begun within so many milliseconds; without it the queue's own time holds. */
  ttl?: number;
  /** The item's unique key. */
  unique?: string;
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
  effects: ("added" | "duplicate" | "repeated")[];
  /** Whether a push with this idempotency key was done before. */
  already: boolean;
}

/** How a worker ends an item of a lease. */
export type Outcome =
  | { id: string; outcome: "done" | "release" }
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
 * Handles an item. What it throws is a retry, unless it is Retry, Release, Throttle or Dead. The signal is aborted if the lease
 * has expired: then another worker may handle the item.
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
   * Pushes an item, or up to 1000 items in one transaction. They are stored durably when it resolves. It tries for
   * `patience`, 30,000 by default. If the answer is lost, it repeats the push only with an idempotency key.
   */
  push(
    queue: string,
    items: string | Uint8Array | NewItem | readonly (string | Uint8Array | NewItem)[],
    options?: { idempotencyKey?: string; patience?: number },
  ): Promise<Pushed>;
  /** Leases items. `lease` is null if nothing is ready. */
  lease(
    queue: string,
    options?: { max?: number; wait?: number; lease?: number; signal?: AbortSignal },
  ): Promise<{ lease: string | null; expiresIn: number; waited?: number; items: Item[] }>;
  /** Extends a lease. */
  extend(queue: string, lease: string): Promise<void>;
  /** Acknowledges items of a lease. */
  acknowledge(queue: string, lease: string, outcomes: readonly Outcome[], options?: { releaseRest?: boolean; timeout?: number }): Promise<void>;
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
