// graphile-worker as a peer: reads one cell a line from stdin, as JSON, runs it, and answers with one line of figures.
// Started by the harness with the database's address in DATABASE_URL. Ends when stdin does.
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import pg from "pg";

const TASK = "item";
const FILL = 1_000; // jobs in a statement while a queue is filled
const SETTLE_LIMIT_MS = 20_000;
const quiet = new Logger(() => () => {});
const now = () => Number(process.hrtime.bigint()) / 1e3; // microseconds

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 40 });
const utils = await makeWorkerUtils({ pgPool: pool, logger: quiet });
await utils.migrate();

/** A payload of `bytes` bytes of JSON with a number in it. */
function payload(number, bytes) {
  const digits = String(number).padStart(20, "0");
  return { n: digits, pad: ".".repeat(bytes - JSON.stringify({ n: digits, pad: "" }).length) };
}

const job = (number, bytes) => ({ identifier: TASK, payload: payload(number, bytes) });

/** Pushes the numbers from `first` on in one statement. */
function push(first, count, bytes) {
  if (count === 1) return utils.addJob(TASK, payload(first, bytes));
  return utils.addJobs(Array.from({ length: count }, (_, nth) => job(first + nth, bytes)));
}

async function empty() {
  await pool.query("truncate graphile_worker._private_jobs");
  await pool.query("checkpoint");
}

async function rest() {
  return Number((await pool.query("select count(*) from graphile_worker._private_jobs")).rows[0].count);
}

/** How often each item was seen. */
class Tally {
  seen = [];
  handled = 0;
  saw(number) {
    this.seen[number] = (this.seen[number] ?? 0) + 1;
    this.handled += 1;
  }
  result(count) {
    let [lost, repeated] = [0, 0];
    for (let number = 0; number < count; number++) {
      const seen = this.seen[number] ?? 0;
      if (seen === 0) lost += 1;
      else repeated += seen - 1;
    }
    return { lost, repeated };
  }
}

function quantiles(prefix, values) {
  const sorted = values.filter((value) => value !== undefined).sort((a, b) => a - b);
  const at = (q) => sorted[Math.min(sorted.length - 1, Math.ceil(q * sorted.length) - 1)] ?? 0;
  const all = { p50: at(0.5), p99: at(0.99), p99_9: at(0.999), max: at(1) };
  return Object.fromEntries(Object.entries(all).map(([name, value]) => [`${prefix}_${name}_us`, value]));
}

/** Starts `workers` workers, which take `k` jobs at a time: more than one by the library's own local queue. */
function start(workers, k, handle, events) {
  const batched = k > 1 ? { localQueue: { size: k }, completeJobBatchDelay: 0 } : {};
  return run({
    pgPool: pool,
    logger: quiet,
    noHandleSignals: true,
    parsedCronItems: [],
    preset: { worker: { concurrentJobs: workers, pollInterval: 2_000, ...batched } },
    events,
    taskList: { [TASK]: ({ n }) => handle(Number(n)) },
  });
}

/** Waits until `done()` is true, up to a limit. */
async function until(done, limit) {
  const end = now() + limit * 1e3;
  while (!(await done()) && now() < end) await sleep(1);
}

const cells = {
  async push({ clients, batch, seconds, payload: bytes }) {
    const latency = [];
    let next = 0;
    const begin = now();
    const end = begin + seconds * 1e6;
    const client = async () => {
      while (now() < end) {
        const first = next;
        next += batch;
        const called = now();
        await push(first, batch, bytes);
        latency.push(now() - called);
      }
    };
    await Promise.all(Array.from({ length: clients }, client));
    const elapsed = (now() - begin) / 1e6;
    const tally = new Tally();
    const { rows } = await pool.query("select payload ->> 'n' as n from graphile_worker._private_jobs");
    for (const { n } of rows) tally.saw(Number(n));
    return { per_second: next / elapsed, ...quantiles("call", latency), ...tally.result(next) };
  },

  async burn({ workers, k, items, seconds, payload: bytes }) {
    for (let first = 0; first < items; first += FILL) await push(first, Math.min(FILL, items - first), bytes);
    const tally = new Tally();
    const begin = now();
    const runner = await start(workers, k, (number) => tally.saw(number));
    await until(() => tally.handled >= items, seconds * 1e3 * 10);
    // What is finished has left the table.
    await until(async () => (await rest()) === 0, SETTLE_LIMIT_MS);
    const elapsed = (now() - begin) / 1e6;
    await runner.stop();
    return { per_second: (items - (await rest())) / elapsed, ...tally.result(items) };
  },

  async sustained({ rate, producers, workers, k, seconds, payload: bytes }) {
    const [tally, started] = [new Tally(), []];
    const runner = await start(workers, k, (number) => {
      started[number] ??= now();
      tally.saw(number);
    });
    const items = Math.floor(rate * seconds);
    const begin = now() + 100_000;
    const due = (number) => begin + (number * 1e6) / rate;
    const producer = async (_, nth) => {
      for (let number = nth; number < items; number += producers) {
        const left = due(number) - now();
        if (left > 1_000) await sleep(Math.floor(left / 1e3));
        while (now() < due(number)) await new Promise(setImmediate);
        await push(number, 1, bytes);
      }
    };
    await Promise.all(Array.from({ length: producers }, producer));
    await until(() => tally.handled >= items, SETTLE_LIMIT_MS);
    await until(async () => (await rest()) === 0, SETTLE_LIMIT_MS);
    const elapsed = (now() - begin) / 1e6;
    await runner.stop();
    const latency = started.map((at, number) => at - due(number));
    return { per_second: items / elapsed, ...quantiles("start", latency), ...tally.result(items) };
  },

  async pickup({ every_ms, count, payload: bytes }) {
    const [tally, called, started] = [new Tally(), [], []];
    const runner = await start(1, 1, (number) => {
      started[number] ??= now();
      tally.saw(number);
    });
    await sleep(every_ms);
    for (let number = 0; number < count; number++) {
      called[number] = now();
      await push(number, 1, bytes);
      await sleep(every_ms);
    }
    await until(() => tally.handled >= count, SETTLE_LIMIT_MS);
    await runner.stop();
    return { ...quantiles("start", started.map((at, n) => at - called[n])), ...tally.result(count) };
  },

  /** Waits: the harness reads what that costs meanwhile. */
  async idle({ workers, seconds }) {
    const runner = await start(workers, 1, () => {});
    await sleep(seconds * 1e3);
    await runner.stop();
    return { lost: 0, repeated: 0 };
  },
};

const answer = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);
answer({ ready: process.version });
for await (const line of createInterface({ input: process.stdin })) {
  const { cell, ...options } = JSON.parse(line);
  try {
    await empty();
    answer(await cells[cell](options));
  } catch (error) {
    answer({ error: String(error?.message ?? error) });
  }
}
await utils.release();
await pool.end();
