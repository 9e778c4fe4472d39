// The types of clients/node, as a program uses them. 45-clients checks it, and does not run it.
import { ApiError, Cancelled, Client, Dead, Release, Retry, Throttle, Worker, work } from "kvqueue-worker";
import type { Handler, Item, NewItem, Options, Pushed } from "kvqueue-worker";

const options: Options = { concurrency: 4, batch: 10, lease: 30_000, wait: 1_000, token: "t", ca: "pem", log: (message) => message };

const handle: Handler = async (item: Item, signal) => {
  const text: string = item.payload.toString();
  if (signal.aborted) throw signal.reason instanceof Cancelled ? signal.reason : new Release();
  item.reportProgress(50, "half");
  item.reportProgress(undefined, "more");
  if (item.attempt === 0) return new Uint8Array(1);
  if (item.attempt > 2 || item.attributes["kind"] === "x") throw new Dead(text);
  if (item.attempt > 1) throw new Throttle("slow down", { after: 1_000, scope: "tenant" });
  throw new Retry("later", { after: 1_000 });
};

export async function main(): Promise<Pushed> {
  const client = new Client(["http://127.0.0.1:7420", new URL("http://127.0.0.2:7420")], { token: "t" });
  const item: NewItem = { payload: new Uint8Array(1), delay: 1_000, ttl: 60_000, unique: "u", uniqueFor: 60_000, attributes: { customer: "ann" } };
  const pushed = await client.pushMany("emails", [item, "text", { to: "ann" }], { idempotencyKey: "k" });
  await client.push("emails", { to: "ann", lines: [1, 2] });
  await client.push("emails", { payload: [1, 2], delay: 1_000 });
  // @ts-expect-error: an array may be several items or one.
  await client.push("emails", ["a", "b"]);
  // @ts-expect-error: an item has no such option.
  await client.push("emails", { payload: "x", dealy: 1_000 });
  const { lease, items } = await client.lease("emails", { max: 2 });
  if (lease !== null) await client.acknowledge("emails", lease, items.map(({ id }) => ({ id, outcome: "done" })));
  const batch = await client.newBatch("reports", { payload: "all done", contentType: "text/plain" }, { deadline: 3_600_000 });
  await client.push("emails", { payload: "x", batch });
  await client.push("emails", { payload: "x", unique: "u", replace: true, delay: 10_000 });
  const { waitsFor } = await client.pushAfter("reports", "x", ["1", { queue: "emails", id: "2" }], { deadline: 1_000, missingOk: true });
  console.log(waitsFor);
  if (await client.commitBatch("reports", batch)) console.log((await client.showBatch("reports", batch)).counts.open);
  for await (const each of client.listBatches("reports")) await client.cancelBatch("reports", each.id);
  await client.putSchedule("reports", "nightly", { cron: "0 3 * * *", zone: "Europe/Berlin", payload: "{}", overlap: "skip", jitter: 1_000 });
  for await (const { name, next } of client.listSchedules("reports")) console.log(name, next?.firesAt);
  const fired: string | null = await client.fireSchedule("reports", "nightly");
  const { outcome, result, progress } = await client.waitItem("reports", fired ?? "", { wait: 60_000 });
  console.log(outcome === "done", result?.toString(), progress?.percent);
  // @ts-expect-error: a batch pushes its callback at once.
  await client.newBatch("reports", { payload: "x", delay: 1_000 });
  const worker = new Worker("unix:/run/kvqueue/http.sock", "emails", handle, options);
  worker.stop();
  await work("http://127.0.0.1:7420", "emails", (each) => console.log(each.id)).catch((error) => {
    if (error instanceof ApiError) console.log(error.status, error.code);
  });
  // @ts-expect-error: times are numbers.
  new Worker("http://127.0.0.1:7420", "emails", handle, { lease: "30s" });
  return pushed;
}
