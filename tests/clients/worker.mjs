/** The program of the tests for Node: the protocol is in test_clients.py. */
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { ApiError, Cancelled, Client, Dead, Release, Retry, Throttle, work } from "../../clients/node/kvqueue-worker.js";

const { URLS, QUEUE, CONCURRENCY, BATCH, LEASE, WAIT, CA_FILE } = process.env;
const ca = CA_FILE ? readFileSync(CA_FILE) : undefined;
const seen = new Set();
const sleep = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1_000));

/** What handlers do wrong. The fake daemon accepts only what a daemon does. */
const wrong = {
  "half a pair": () => new RangeError("x".repeat(987) + "\u{1f600}"),
  "dead with half a pair": () => new Dead("\ud83d"),
  "no text": () => Object.create(null),
  "not a number": () => new Retry("x", { after: NaN }),
  "text for a number": () => new Retry("x", { after: "five seconds" }),
};

/** What handlers return. */
const results = {
  text: "r\u00e9sultat",
  bytes: new Uint8Array([255, 0]),
  empty: "",
  "too long": "x".repeat(90_001),
  long: "x".repeat(90_000),
  "half a pair": "\ud83d",
  other: 7,
};

async function handle(item, signal) {
  const wanted = JSON.parse(item.payload);
  console.log("begin", wanted.n, item.attempt);
  if (wanted.do === "until lost") {
    await once(signal, "abort", { signal: AbortSignal.timeout(20_000) });
    console.log("end", wanted.n, item.attempt);
    signal.throwIfAborted();
  }
  if (wanted.do === "progress") {
    item.reportProgress(10);
    item.reportProgress(50.5, "half \u00e4" + "x".repeat(300));
    await once(signal, "abort", { signal: AbortSignal.timeout(20_000) });
    if (!(signal.reason instanceof Cancelled)) throw new Dead("it was not cancelled");
    console.log("end", wanted.n, item.attempt);
    signal.throwIfAborted();
  }
  if (wanted.sleep) await sleep(wanted.sleep);
  const until = Date.now() + (wanted.block ?? 0) * 1_000;
  while (Date.now() < until);
  const isFirst = !seen.has(wanted.n);
  seen.add(wanted.n);
  if (wanted.do === "dead") throw new Dead("never");
  if (wanted.do === "fail") throw new RangeError("always");
  if (wanted.do === "retry" && isFirst) throw new Retry("once more", { after: 0 });
  if (wanted.do === "key") throw new Dead(item.key.toString());
  if (wanted.do === "release" && isFirst) throw new Release();
  if (wanted.do === "throttle" && isFirst) throw new Throttle("slow down", { after: 500, scope: "queue" });
  if (wrong[wanted.do]) throw wrong[wanted.do]();
  console.log("end", wanted.n, item.attempt);
  return wanted.do === "result" ? results[wanted.result] : undefined;
}

async function push() {
  const wanted = JSON.parse(readFileSync(0));
  const inMs = (seconds) => (typeof seconds === "number" ? seconds * 1_000 : seconds);
  const itemOf = ({ content_type, delay, ttl, unique_for, ...item }) => ({
    ...item,
    contentType: content_type,
    delay: inMs(delay),
    ttl: inMs(ttl),
    uniqueFor: inMs(unique_for),
  });
  const client = new Client(URLS.split(" "), { ca });
  const pushed = "item" in wanted
    ? client.push(wanted.queue, wanted.item)
    : client.pushMany(wanted.queue, wanted.items.map(itemOf), { idempotencyKey: wanted.key });
  console.log(JSON.stringify(await pushed));
  client.close();
}

const camel = (name) => name.replace(/_(.)/g, (_, letter) => letter.toUpperCase());

async function call() {
  const { method, queue, arguments: given, options } = JSON.parse(readFileSync(0));
  const times = ["wait", "deadline", "every", "missed_window", "jitter"];
  const named = Object.fromEntries(Object.entries(options).map(([name, value]) => [camel(name), times.includes(name) ? value * 1_000 : value]));
  let all = [...given, named];
  if (method === "put_schedule") all = [given[0], { payload: given[1], ...named }];
  if (method === "push_after") all = [given[0], named.after.map(([queue, id]) => (queue ? { queue, id } : id)), named];
  const client = new Client(URLS.split(" "), { ca });
  const answer = await ask(client, camel(method), queue, all);
  if (answer?.hasEnded !== undefined) {
    answer.has_ended = answer.hasEnded;
    answer.outcome ??= null;
    answer.result = answer.result?.toString("latin1") ?? null;
    answer.progress = answer.progress ? [answer.progress.percent, answer.progress.message] : null;
  }
  if (answer?.waitsFor !== undefined) answer.waits_for = answer.waitsFor;
  console.log(JSON.stringify(answer ?? null));
  client.close();
}

async function ask(client, method, queue, given) {
  try {
    const found = client[method](queue, ...given);
    if (!found[Symbol.asyncIterator]) return await found;
    const all = [];
    for await (const each of found) all.push(each);
    return all;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return { error: error.code, message: error.message };
  }
}

const number = (text, unit = 1) => (text === undefined ? undefined : Number(text) * unit);
const options = { concurrency: number(CONCURRENCY), batch: number(BATCH), lease: number(LEASE, 1_000), wait: number(WAIT, 1_000), ca };

try {
  if (process.argv[2] === "push") await push();
  else if (process.argv[2] === "call") await call();
  else await work(URLS.split(" "), QUEUE, handle, options);
} catch (error) {
  if (!(error instanceof ApiError)) throw error;
  console.error(`refused: ${error.message}`);
  process.exitCode = 1;
}
