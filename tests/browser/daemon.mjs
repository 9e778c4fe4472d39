// A kvqueue daemon in a scratch directory, and commands on its database.
import { execFile, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

export const PATIENCE = 60000;
const program = process.env.KVQUEUE;

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Waits until `look` gives something true, and returns it.
export async function until(what, look, patience = PATIENCE) {
  const end = Date.now() + patience;
  for (;;) {
    const found = await look();
    if (found) return found;
    if (Date.now() > end) throw new Error(`not within ${patience} ms: ${what}`);
    await sleep(20);
  }
}

export class Daemon {
  // `queues`: the text of the tables; `http`: lines of [http].
  constructor(queues, http = "") {
    this.directory = mkdtempSync(join(tmpdir(), "kvqueue-page-"));
    this.queues = queues.replaceAll("SCRATCH", this.directory);
    const open = http.includes("token") ? "" : "require-token = false\n";
    this.http = open + http.replaceAll("SCRATCH", this.directory);
    this.listen = "127.0.0.1:0";
  }

  path(name) {
    return join(this.directory, name);
  }

  async start() {
    const config = `database = "embedded:${this.path("db")}"\nshutdown-timeout = "1s"\n[log]\nformat = "json"\n[http]\nlisten = "${this.listen}"\n${this.http}\n`;
    writeFileSync(this.path("kvqueue.toml"), config + this.queues);
    const log = this.path("log");
    writeFileSync(log, "");
    const child = spawn("sh", ["-c", 'exec "$0" run 2> "$1"', program, log], { env: this.environment(), stdio: "ignore" });
    this.ended = new Promise((resolve) => child.on("exit", resolve));
    this.child = child;
    let over = false;
    this.ended.then(() => (over = true));
    const said = await until("the daemon is ready", () => {
      if (over) throw new Error(`the daemon ended: ${readFileSync(log)}`);
      const text = readFileSync(log, "utf8");
      return text.includes('"ready"') && text;
    });
    this.listen = said.match(/"address":"([^"]+)"/)[1];
    this.url = `http://${this.listen}/`;
    return this;
  }

  environment() {
    const kept = Object.entries(process.env).filter(([name]) => !name.startsWith("KVQUEUE") && name !== "NOTIFY_SOCKET");
    return { ...Object.fromEntries(kept), KVQUEUE_CONFIG: this.path("kvqueue.toml") };
  }

  async stop() {
    this.child.kill("SIGTERM");
    return this.ended;
  }

  async remove() {
    await this.stop();
    rmSync(this.directory, { recursive: true });
  }

  // Without blocking: the browser is spoken to meanwhile.
  async run(...args) {
    const { stdout } = await promisify(execFile)(program, args, { env: this.environment(), encoding: "utf8" });
    return stdout;
  }

  push(queue, ...payloads) {
    return this.run("push", queue, ...payloads);
  }

  async counts(queue) {
    return JSON.parse(await this.run("len", queue, "--json"));
  }
}
