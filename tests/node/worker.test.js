/** The worker of clients/ against a daemon. Run with `node --test`; KVQUEUE names the program. */
"use strict";

const assert = require("node:assert");
const { execFileSync, spawn } = require("node:child_process");
const fs = require("node:fs");
const net = require("node:net");
const os = require("node:os");
const path = require("node:path");
const { afterEach, beforeEach, test } = require("node:test");

const { ApiError, Client, Dead, Release, Retry, Worker } = require("../../clients/node/kvqueue-worker");

const program = process.env.KVQUEUE;
const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
let directory, config, url, daemon;

const kvqueue = (args, input) => execFileSync(program, ["--config", config, ...args], { input }).toString();

async function start() {
  daemon = spawn(program, ["run", "--quiet", "--config", config], { stdio: ["ignore", "inherit", "inherit"] });
  for (let n = 0; n < 300; n++) {
    try {
      if ((await fetch(`${url}/readyz`)).ok) return;
    } catch {
      // It does not listen yet.
    }
    await sleep(100);
  }
  assert.fail("the daemon does not answer");
}

async function kill() {
  const ended = new Promise((resolve) => daemon.once("exit", resolve));
  daemon.kill("SIGKILL");
  await ended;
}

beforeEach(async () => {
  directory = fs.mkdtempSync(path.join(os.tmpdir(), "kvqueue-"));
  const server = net.createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  url = `http://127.0.0.1:${port}`;
  config = path.join(directory, "kvqueue.toml");
  const queue = '[queues."a/b"]\nhandler = "pull"\nlease = "2s"\nretry.max-attempts = 3\n';
  fs.writeFileSync(config, `database = "embedded:${directory}/data"\nhttp.listen = "127.0.0.1:${port}"\n${queue}`);
  await start();
});

afterEach(async () => {
  await kill();
  fs.rmSync(directory, { recursive: true });
});

/** Works until `isOver`, and stops. */
async function work(handle, isOver, options) {
  const worker = new Worker(url, "a/b", handle, options);
  const running = worker.run();
  try {
    for (let n = 0; !isOver(); n++) {
      assert.ok(n < 600, "the items are not handled");
      await sleep(100);
    }
  } finally {
    const began = Date.now();
    worker.stop();
    await running;
    assert.ok(Date.now() - began < 10_000, "it stops at once");
  }
}

test("outcomes", async () => {
  kvqueue(["push", "a/b", "done", "retry", "release", "dead", "ä"]);
  const seen = {};
  const handle = async ({ payload }) => {
    const word = payload.toString();
    seen[word] = (seen[word] ?? 0) + 1;
    if (seen[word] === 1 && word === "retry") throw new Retry("once more", { after: 0 });
    if (seen[word] === 1 && word === "release") throw new Release();
    if (word === "dead") throw new Dead("never");
  };
  await work(handle, () => Object.keys(seen).length === 5 && seen.retry + seen.release === 4, { batch: 2 });
  assert.deepStrictEqual(seen, { done: 1, retry: 2, release: 2, dead: 1, "ä": 1 });
  assert.match(kvqueue(["dead", "list", "a/b"]), /never/);
});

test("items are handled while daemons are killed", async () => {
  const count = 2000;
  kvqueue(["push", "a/b", "--lines", "-"], Array.from({ length: count }, (_, n) => `${n}\n`).join(""));
  const done = new Set();
  const handle = async ({ payload }) => {
    await sleep(10);
    done.add(Number(payload));
  };
  const disturbed = (async () => {
    for (let n = 0; n < 4; n++) {
      await sleep(1000);
      await kill();
      await start();
    }
  })();
  await work(handle, () => done.size === count, { concurrency: 4, batch: 20 });
  await disturbed;
});

test("a long handler keeps its lease", async () => {
  kvqueue(["push", "a/b", "slow"]);
  const calls = [];
  const handle = async ({ attempt }) => {
    await sleep(4000);
    calls.push(attempt);
  };
  await work(handle, () => calls.length > 0, { lease: 1000 });
  assert.deepStrictEqual(calls, [1]);
  assert.strictEqual((await new Client(url, "a/b").lease()).lease, null);
});

test("a request without access is refused", async () => {
  await kill();
  fs.writeFileSync(config, `http.require-token = true\n${fs.readFileSync(config)}`);
  await start();
  await assert.rejects(new Worker(url, "a/b", () => {}, { token: "" }).run(), (error) => error instanceof ApiError && error.status === 401);
  const token = kvqueue(["token", "new", "w", "--scope", "work", "--queue", "a/*"]).trim();
  kvqueue(["push", "a/b", "one"]);
  const seen = [];
  await work(async ({ payload }) => seen.push(payload.toString()), () => seen.length > 0, { token });
  assert.deepStrictEqual(seen, ["one"]);
});
