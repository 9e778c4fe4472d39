// The page in a real browser, on a real daemon.
//
//   KVQUEUE=target/debug/kvqueue PLAYWRIGHT=DIRECTORY [CHROMIUM=/usr/bin/chromium] node tests/browser/page.mjs
//
// DIRECTORY is where `npm install playwright-core` was run. `.ci/operator.d/50-page` does all of it.
import assert from "node:assert/strict";
import { chmodSync, readFileSync, writeFileSync } from "node:fs";
import { after, before, test } from "node:test";

import { cell, feedState, figure, launch, live, open, tabTo, wrong } from "./browser.mjs";
import { Daemon, sleep, until } from "./daemon.mjs";

const HOSTILE = `<img src=x onerror="alert('name')">&amp;/..%2F 100%`;
const LONG = "a-name-that-is-as-long-as-names-get-".repeat(6).slice(0, 200);

// In `slow` one item is in hand and the others wait; in `bad` items die until there is a file.
const QUEUES = `
[queues.slow]
handler = "exec"
handler-config = { command = ["sleep", "600"] }
consumers = [{ k = 1, count = 1 }]
[queues.bad]
handler = "exec"
handler-config = { command = ["sh", "-c", "test -e SCRATCH/mended || { echo 'the <b>mail</b> server refused' >&2; exit 1; }"] }
retry = { max-attempts = 1 }
[queues.quick]
handler = "log"
[queues.keyed]
handler = "pull"
kind = "keyed"
[queues.ordered]
handler = "exec"
kind = "keyed"
handler-config = { command = ["false"] }
retry = { max-attempts = 1 }
[queues.${JSON.stringify(HOSTILE)}]
handler = "exec"
handler-config = { command = ["sleep", "600"] }
consumers = [{ k = 1, count = 1 }]
[queues.${LONG}]
handler = "log"
[queues.flaky]
handler = "exec"
handler-config = { command = ["sh", "-c", "echo 'the <b>mail</b> server is down' >&2; exit 1"] }
retry = { max-attempts = 7, base = "1h" }
[queues.kept]
handler = "exec"
handler-config = { command = ["sh", "-c", "case $(cat) in bad) echo 'no such <b>address</b>' >&2; exit 65;; long) exec sleep 600;; esac"] }
consumers = [{ k = 1, count = 1 }]
history = "24h"
[queues.told]
handler = "exec"
lease = "3s"
history = "24h"
consumers = [{ k = 1, count = 2 }]
retry = { max-attempts = 1 }
[queues.told.handler-config]
progress = "stderr"
result = "stdout"
command = ["sh", "SCRATCH/tell"]
${Array.from({ length: 42 }, (_, at) => `[queues.other-${at}]\nhandler = "log"\n`).join("")}`;

// The handler of `told`: it waits for files, reports how far it is, and prints results.
const TELL = `
wait_for() { until test -e SCRATCH/$1; do sleep 0.1; done; }
case $(cat) in
slow)
  echo 'kvqueue-progress 40% <b>sending</b> the mails to those whose names begin with s' >&2
  wait_for nearly
  echo 'kvqueue-progress 80% nearly' >&2
  wait_for end
  printf '<img src=x onerror="alert(1)"> ä' ;;
bare)
  echo 'kvqueue-progress looking for it' >&2
  wait_for end ;;
json) printf '{"sent":12345678901234567890}' ;;
bytes) printf '\\377\\000x' ;;
long) seq 3000 ;;
too-long) head -c 90001 /dev/zero ;;
esac
`;

const PAYLOADS = [
  "taken at once",
  '{"to":"ada@example.com","number":12345678901234567890,"list":[1,{}]}',
  "<script>alert('payload')</script>",
  "plain text",
  "x".repeat(5000),
];

let daemon;
let browser;

before(async () => {
  browser = await launch();
  daemon = new Daemon(QUEUES);
  writeFileSync(daemon.path("tell"), TELL.replaceAll("SCRATCH", daemon.directory));
  await daemon.start();
  await daemon.push("slow", ...PAYLOADS);
  await daemon.push(HOSTILE, "first", `<svg onload="alert('payload')">`);
  await daemon.push("bad", "one", "two", "three");
  await daemon.push("flaky", "fails");
  await daemon.push("flaky", "for later", "--delay", "1h");
  await until("letters are dead", async () => (await daemon.counts("bad")).dead === 3);
});

after(async () => {
  await browser?.close();
  await daemon?.remove();
});

test("it loads, is light, and asks nobody else", async () => {
  const page = await open(browser, daemon.url);
  await live(page);
  await until("the title", async () => (await page.title()) === "(3 dead) Queues · kvqueue");
  assert.equal(await page.locator("tbody tr").count(), 52);
  assert.equal(await cell(page, "bad", "Dead").textContent(), "3");
  const bytes = await page.evaluate(() => [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
    .filter((it) => !it.name.includes("/api/")).reduce((all, it) => all + it.decodedBodySize, 0));
  assert.ok(bytes > 10000 && bytes < 150000, `${bytes} bytes`);
  // What is named to be hostile is a text.
  assert.equal(await page.locator("main img").count(), 0);
  await page.getByText(HOSTILE, { exact: true }).waitFor();
  assert.deepEqual(await wrong(page), []);
  await page.context().close();
});

test("an operator changes the rules of a keyed queue", async () => {
  await daemon.push("keyed", "of a tenant", "--kind", "keyed", "--key", "tenant-7");
  const page = await open(browser, `${daemon.url}#/queue/keyed`);
  await live(page);
  await page.locator(".entry", { hasText: "key tenant-7" }).waitFor();
  await page.getByRole("tab", { name: "Limits" }).click();
  await page.getByText("There are no rules").waitFor();
  await page.getByRole("button", { name: "Add a rule…" }).click();
  const set = page.getByRole("button", { name: "Set", exact: true });
  assert.ok(await set.isDisabled(), "a rule sets something");
  await page.getByRole("textbox", { name: "Keys" }).fill("tenant-*");
  await page.getByRole("spinbutton", { name: "Most items" }).fill("2");
  await set.click();
  const row = page.getByRole("row", { name: "tenant-*" });
  assert.equal(await row.getByRole("cell").first().textContent(), "2");
  await row.getByRole("button", { name: "Change…" }).click();
  await page.getByRole("spinbutton", { name: "Weight" }).fill("3");
  await page.getByRole("spinbutton", { name: "Burst" }).fill("20");
  assert.ok(await set.isDisabled(), "a burst belongs to a rate");
  await page.getByRole("textbox", { name: "Rate" }).fill("100");
  assert.ok(await set.isDisabled(), "a rate has a time");
  await page.getByRole("textbox", { name: "Rate" }).fill("100/60s");
  await set.click();
  await until("the weight", async () => (await row.getByRole("cell").nth(2).textContent()) === "3");
  assert.equal(await row.getByRole("cell").nth(1).textContent(), "100/1m, burst 20");
  await row.getByRole("button", { name: "Remove…" }).click();
  await page.getByRole("button", { name: "Remove", exact: true }).click();
  await page.getByText("There are no rules").waitFor();
  assert.deepEqual(await wrong(page), []);
  await page.context().close();
});

test("an operator pauses a schedule, fires it by hand and reads its history", async () => {
  const page = await open(browser, `${daemon.url}#/queue/keyed`);
  await live(page);
  const tab = page.getByRole("tab", { name: "Schedules" });
  assert.equal(await tab.count(), 0, "the queue has no schedules");
  await daemon.run("schedule", "add", "keyed", "<b>nightly</b>", '{"report":1}', "--cron", "0 3 * * *", "--zone", "Europe/Berlin", "--kind", "keyed", "--key", "a");
  await tab.click();
  const row = page.getByRole("list", { name: "Schedules" }).locator(".entry");
  await row.getByText("at 03:00 every day, Europe/Berlin time").waitFor();
  assert.match(await row.locator(".meta").textContent(), /^next in \d+ (h|min|s)/);
  await row.getByText("<b>nightly</b>").click();
  await row.getByText("It has not fired yet.").waitFor();
  // Times of a schedule are in its zone, whatever the browser's is.
  await row.getByText(/^\d{4}-\d\d-\d\d 03:00:00 Europe\/Berlin \(in /).waitFor();
  // Exactly: the row itself is a button too, and says "Paused".
  await row.getByRole("button", { name: "Pause", exact: true }).click();
  await row.getByRole("button", { name: "Resume", exact: true }).waitFor();
  await row.locator(".badge", { hasText: "Paused" }).waitFor();
  await row.getByRole("button", { name: "Fire now…" }).click();
  await page.getByRole("button", { name: "Fire", exact: true }).click();
  const record = row.getByRole("row", { name: "Fired by hand" });
  await record.waitFor();
  const [item] = JSON.parse(`[${(await daemon.run("peek", "keyed", "--kind", "keyed", "-k", "100", "--json")).trim().replaceAll("\n", ",")}]`)
    .filter((it) => it.attributes?.schedule === "<b>nightly</b>");
  assert.equal(item.payload, '{"report":1}');
  assert.equal(await record.locator("code").textContent(), item.id);
  await row.getByRole("button", { name: "Resume", exact: true }).click();
  await row.getByRole("button", { name: "Pause", exact: true }).waitFor();
  await daemon.run("schedule", "pause", "keyed", "<b>nightly</b>");
  await row.getByRole("button", { name: "Pause", exact: true }).click();
  await row.getByRole("button", { name: "Resume", exact: true }).waitFor();
  assert.deepEqual(await wrong(page), []);
  await page.context().close();
});

test("an operator unblocks a key", async () => {
  const page = await open(browser, `${daemon.url}#/queue/ordered`);
  await live(page);
  await page.getByRole("tab", { name: "Limits" }).click();
  await page.getByText("No key is held.").waitFor();
  await page.getByRole("button", { name: "Add a rule…" }).click();
  await page.getByRole("textbox", { name: "Keys" }).fill("account-*");
  await page.getByRole("checkbox", { name: "one at a time" }).check();
  await page.getByRole("combobox", { name: "dead letter" }).selectOption("block");
  await page.getByRole("button", { name: "Set", exact: true }).click();
  const row = page.getByRole("row", { name: "account-*" });
  await until("the rule", async () => (await row.getByRole("cell").nth(4).textContent()) === "block");
  await row.getByRole("button", { name: "Change…" }).click();
  assert.equal(await page.getByRole("combobox", { name: "dead letter" }).inputValue(), "block");
  await page.getByRole("button", { name: "Cancel" }).click();
  await daemon.push("ordered", "fails", "--kind", "keyed", "--key", "account-1");
  const held = page.getByRole("list", { name: "Held keys" });
  await held.getByText("account-1").click();
  await held.getByText("waits for a dead letter").waitFor();
  await page.getByRole("button", { name: "Unblock…" }).click();
  await page.getByRole("button", { name: "Unblock", exact: true }).click();
  await page.getByText("No key is held.").waitFor();
  assert.equal((await daemon.counts("ordered")).dead, 1, "it stays a dead letter");
  await daemon.run("dead", "purge", "ordered", "--all", "--yes");
  assert.deepEqual(await wrong(page), []);
  await page.context().close();
});

test("a dialog closes when its queue is left", async () => {
  const page = await open(browser, daemon.url);
  await live(page);
  await page.getByRole("link", { name: "keyed", exact: true }).click();
  await page.getByRole("tab", { name: "Limits" }).click();
  await page.getByRole("button", { name: "Add a rule…" }).click();
  await page.getByRole("dialog", { name: "Add a rule" }).waitFor();
  await page.evaluate(() => (location.hash = ""));
  await page.getByRole("link", { name: "keyed", exact: true }).waitFor();
  assert.equal(await page.getByRole("dialog").count(), 0);
  assert.deepEqual(await wrong(page), []);
  await page.context().close();
});

test("other queues have no rules to change", async () => {
  const page = await open(browser, `${daemon.url}#/queue/slow`);
  await live(page);
  await page.getByRole("tab", { name: "Workers" }).waitFor();
  assert.equal(await page.getByRole("tab", { name: "Limits" }).count(), 0);
  await page.context().close();
});

test("a push is seen within two seconds", async () => {
  const page = await open(browser, daemon.url);
  await live(page);
  const ready = cell(page, "slow", "Ready");
  await until("the first figures", async () => Number(await ready.textContent()) > 0);
  const delays = [];
  for (const pause of [0, 300, 700, 2500, 4000]) {
    await sleep(pause);
    const wanted = String(Number(await ready.textContent()) + 1);
    // The page notes when it shows the figure; its clock is ours.
    await ready.evaluate((node, text) => {
      const look = () => node.textContent === text && (window.shownAt ??= Date.now());
      window.shownAt = undefined;
      new MutationObserver(look).observe(node, { childList: true, characterData: true, subtree: true });
    }, wanted);
    await daemon.push("slow", "one more");
    const pushed = Date.now();
    delays.push((await until("it is shown", () => page.evaluate(() => window.shownAt), 5000)) - pushed);
  }
  console.log(`# shown after a push: ${delays.join(", ")} ms`);
  // The middle one: a busy machine delays one or two.
  assert.ok(delays.toSorted((a, b) => a - b)[2] < 2000, delays.join());
  await page.context().close();
});

test("queues are found and sorted", async () => {
  const page = await open(browser, daemon.url);
  await live(page);
  await page.getByRole("searchbox").fill("OTHER-1");
  assert.equal(await page.locator("tbody tr").count(), 11);
  await page.getByRole("searchbox").fill("nothing has this name");
  await page.getByText("No queue's name has").waitFor();
  await page.getByRole("searchbox").fill("");
  await page.getByRole("button", { name: "Dead" }).click();
  assert.equal(await page.locator("tbody tr .name").first().textContent(), "bad");
  assert.equal(await page.locator("th[aria-sort=descending]").textContent(), "Dead");
  await page.context().close();
});

test("items are looked at as text, JSON and bytes", async () => {
  const page = await open(browser, `${daemon.url}#/queue/slow`);
  await live(page);
  await page.getByRole("heading", { name: "slow" }).waitFor();
  const entry = (text) => page.locator(".entry", { hasText: text });
  await entry("ada@example.com").getByRole("button").first().click();
  const shown = entry("ada@example.com").locator("pre");
  assert.equal(await shown.textContent(), `{
  "to": "ada@example.com",
  "number": 12345678901234567890,
  "list": [
    1,
    {}
  ]
}`);
  await entry("ada@example.com").getByRole("tab", { name: "Hex" }).click();
  assert.match(await shown.textContent(), /^000000 {2}7b 22 74 6f .* {2}\{"to":"ada@examp\n/);
  await entry("ada@example.com").getByRole("tab", { name: "Text" }).click();
  assert.equal(await shown.textContent(), PAYLOADS[1]);
  await entry("<script>").getByRole("button").first().click();
  assert.equal(await entry("<script>").locator("pre").textContent(), PAYLOADS[2]);
  // A page has the beginning of it.
  await entry("xxxx").getByRole("button").first().click();
  await page.getByText("These are the first 1 kB of 5 kB.").waitFor();
  await entry("xxxx").getByRole("button", { name: "Load the whole payload" }).click();
  await until("all of it", async () => (await entry("xxxx").locator("pre").textContent()).length === 5000);
  assert.deepEqual(await wrong(page), []);
  await page.context().close();
});

test("items are seen by what they are doing", async () => {
  const page = await open(browser, `${daemon.url}#/queue/flaky/retrying`);
  await live(page);
  const entry = (text) => page.locator(".entry", { hasText: text });
  await entry("the <b>mail</b> server is down").waitFor();
  assert.match(await entry("the <b>mail</b>").textContent(), /attempt 1 of 7 failed · due in \d+ min/);
  await entry("the <b>mail</b>").getByRole("button").first().click();
  assert.equal(await entry("the <b>mail</b>").locator(".payload").textContent(), "fails");
  await page.getByRole("tab", { name: "Scheduled" }).click();
  await entry("for later").waitFor();
  assert.match(await entry("for later").textContent(), /due in \d+ (min|h)/);
  await page.goto(`${daemon.url}#/queue/slow/running`);
  await entry("taken at once").waitFor();
  await until("its consumer", async () => /attempt 1 of 20 · consumer #\d+ · for/.test(await entry("taken at once").textContent()));
  assert.equal(await page.getByRole("tab", { name: "Running (1)" }).getAttribute("aria-selected"), "true");
  await entry("taken at once").getByRole("button").first().click();
  await page.getByText("of this daemon", { exact: false }).first().waitFor();
  assert.deepEqual(await wrong(page), []);
  await page.context().close();
});

test("items that wait are requeued and deleted, and found by their ids", async () => {
  await daemon.push("flaky", "to be deleted", "--delay", "2h");
  const page = await open(browser, `${daemon.url}#/queue/flaky/scheduled`);
  await live(page);
  const entry = (text) => page.locator(".entry", { hasText: text });
  const dialog = page.getByRole("dialog");
  await entry("to be deleted").getByRole("button").first().click();
  await entry("to be deleted").getByRole("button", { name: "Delete…" }).click();
  await page.keyboard.press("Escape");
  assert.equal(await entry("to be deleted").count(), 1);
  await entry("to be deleted").getByRole("button", { name: "Delete…" }).click();
  await dialog.getByRole("button", { name: "Delete" }).click();
  await page.getByText("is deleted.").waitFor();
  await entry("to be deleted").waitFor({ state: "detached" });
  assert.equal((await daemon.counts("flaky")).waiting, 2);
  await page.getByRole("tab", { name: "Retrying" }).click();
  const id = await entry("the <b>mail</b>").locator("code.id").textContent();
  await page.getByRole("searchbox").fill(id);
  await page.keyboard.press("Enter");
  const found = page.locator(".found");
  await found.getByText("This item is retrying.").waitFor();
  await found.getByRole("button", { name: "Requeue now…" }).click();
  await dialog.getByRole("button", { name: "Requeue" }).click();
  await page.getByText(`${id} is ready now.`).waitFor();
  // It fails once more.
  await until("its next attempt", async () => {
    await page.getByRole("button", { name: "Refresh" }).click();
    return /attempt 2 of 7 failed/.test(await page.locator(".entries").textContent());
  });
  await page.getByRole("searchbox").fill("no id");
  await page.keyboard.press("Enter");
  await found.locator(".notice.bad").waitFor();
  // A request that was refused is an error of the console, and nothing else.
  assert.deepEqual(await wrong(page), []);
  await page.context().close();
});

test("a running item is cancelled, and is among the ended items then", async () => {
  await daemon.push("kept", "long");
  const page = await open(browser, `${daemon.url}#/queue/kept/running`);
  await live(page);
  const entry = page.locator(".entry", { hasText: "long" });
  await entry.getByRole("button").first().click();
  await entry.getByText(/by consumer #\d+ of this daemon/).waitFor();
  const id = await entry.locator("code.id").first().textContent();
  const dialog = page.getByRole("dialog");
  await entry.getByRole("button", { name: "Cancel…" }).click();
  await page.keyboard.press("Escape");
  assert.equal((await daemon.counts("kept")).running, 1, "nothing is cancelled without a confirmation");
  await entry.getByRole("button", { name: "Cancel…" }).click();
  await dialog.getByRole("button", { name: "Cancel the item" }).click();
  await page.getByText(`${id} is cancelled.`).waitFor();
  await entry.waitFor({ state: "detached" });
  const { running, dead } = await daemon.counts("kept");
  assert.deepEqual([running, dead], [0, 0]);
  await page.getByRole("tab", { name: "Ended" }).click();
  const ended = page.getByRole("list", { name: "Ended items" }).locator(".entry", { hasText: id });
  await ended.getByText("cancelled", { exact: true }).waitFor();
  assert.deepEqual(await wrong(page), []);
  await page.context().close();
});

test("ended items are listed by pages, filtered, and open to a time line", async () => {
  await daemon.push("kept", "good", "--attr", "customer=<i>ann</i>");
  await daemon.push("kept", ...Array.from({ length: 26 }, (_, at) => `fine ${at}`));
  await daemon.push("kept", "bad");
  await until("they have ended", async () => { const { dead, done } = await daemon.counts("kept"); return dead === 1 && done === 27; });
  const page = await open(browser, `${daemon.url}#/queue/kept`);
  await live(page);
  await page.getByRole("tab", { name: "Ended" }).click();
  const entries = page.getByRole("list", { name: "Ended items" }).locator(".entry");
  await entries.getByText(/^dead: .*: no such <b>address<\/b>$/).waitFor();
  assert.equal(await entries.count(), 25);
  await page.getByRole("button", { name: "Next" }).click();
  await page.getByText("Page 2").waitFor();
  await until("the rest", async () => (await entries.count()) < 25);
  const filters = page.getByRole("form", { name: "Filters" });
  await filters.getByRole("combobox", { name: "Outcome" }).selectOption("dead");
  await until("the dead letter alone", async () => (await entries.count()) === 1);
  await entries.getByRole("button").first().click();
  const life = entries.getByRole("list", { name: "Time line" }).getByRole("listitem");
  assert.deepEqual(await life.locator("b").allTextContents(), ["Pushed", "Fetched for the last time", "Became a dead letter"]);
  assert.match(await life.last().textContent(), /after 1 attempt, < 1 s after its last fetch, by .+\/\d+\n.*: no such <b>address<\/b>/);
  await filters.getByRole("combobox", { name: "Outcome" }).selectOption("");
  await filters.getByRole("textbox", { name: "Attribute" }).fill("customer=<i>ann</i>");
  await filters.getByRole("textbox", { name: "Since" }).fill("1h");
  await page.keyboard.press("Enter");
  await until("the item of the customer", async () => (await entries.count()) === 1 && (await entries.textContent()).includes("done"));
  await filters.getByRole("textbox", { name: "Since" }).fill("tomorrow");
  await page.keyboard.press("Enter");
  await page.getByRole("alert").getByText("is not a time").waitFor();
  await page.goto(`${daemon.url}#/queue/slow`);
  await page.getByRole("tab", { name: "Workers" }).waitFor();
  assert.equal(await page.getByRole("tab", { name: "Ended" }).count(), 0, "a queue without a history");
  assert.deepEqual(await wrong(page), []);
  await page.context().close();
});

test("an item is found by its id or its unique key, whatever its state", async () => {
  const history = async (...args) => (await daemon.run("history", "kept", "--json", "-n", "1", ...args)).trim();
  const [done, dead] = [JSON.parse(await history("--outcome", "done")), JSON.parse(await history("--outcome", "dead"))];
  await daemon.push("kept", "for later", "--unique", "order 7", "--delay", "1h");
  const page = await open(browser, `${daemon.url}#/queue/kept/workers`);
  await live(page);
  const found = page.locator(".found");
  const find = async (text) => {
    await page.getByRole("searchbox", { name: "Item id or unique key" }).fill(text);
    await page.keyboard.press("Enter");
  };
  const life = () => found.getByRole("list", { name: "Time line" }).locator("b").allTextContents();
  await find("order 7");
  await found.getByText("This item is scheduled.").waitFor();
  assert.equal(await found.locator(".payload").textContent(), "for later");
  assert.deepEqual(await life(), ["Pushed", "Due"]);
  await find(done.id);
  await found.getByText("This item has ended.").waitFor();
  assert.deepEqual(await life(), ["Pushed", "Fetched for the last time", "Ended: done"]);
  await find(dead.id);
  await found.getByText("This item is dead.").waitFor();
  assert.deepEqual(await life(), ["Attempt 1 failed", "Became a dead letter"]);
  await found.getByRole("button", { name: "Requeue" }).waitFor();
  await find("order 8");
  await found.getByText("No item has this id or unique key").waitFor();
  assert.deepEqual(await wrong(page), []);
  await page.context().close();
});

test("the progress of running items is shown and followed", async () => {
  await daemon.push("told", "slow", "bare");
  const page = await open(browser, `${daemon.url}#/queue/told/running`);
  await live(page);
  const entry = (text) => page.locator(".entry", { hasText: text });
  const row = entry("slow").locator(".opener .progress");
  await until("progress in the list", async () => {
    await page.getByRole("button", { name: "Refresh" }).click();
    return (await row.count()) === 1 && (await entry("bare").locator(".progress").count()) === 1;
  });
  assert.equal(await row.textContent(), "40% <b>sending</b> the mails to th…");
  assert.equal(await row.getByRole("progressbar").getAttribute("value"), "40");
  assert.equal(await entry("bare").locator(".progress").textContent(), "looking for it");
  assert.equal(await entry("bare").getByRole("progressbar").count(), 0, "a handler that reports no percentage");
  const id = await entry("slow").locator("code.id").textContent();
  await entry("slow").getByRole("button").first().click();
  const shown = entry("slow").getByRole("group", { name: "Progress" });
  assert.match(await shown.textContent(), /^40% · <b>sending<\/b> the mails to those whose names begin with sreported .* ago$/);
  writeFileSync(daemon.path("nearly"), "");
  await shown.getByText("80% · nearly").waitFor();
  assert.equal(await shown.getByRole("progressbar").getAttribute("value"), "80");
  const found = page.locator(".found");
  const find = async () => {
    await page.getByRole("searchbox").fill(id);
    await page.keyboard.press("Enter");
  };
  await find();
  await found.getByText("80% · nearly").waitFor();
  writeFileSync(daemon.path("end"), "");
  await entry("slow").getByText("This item is not running any more: it is done.").waitFor();
  assert.equal(await shown.count(), 0);
  await find();
  await found.getByText("This item has ended.").waitFor();
  assert.equal(await found.locator(".payload").textContent(), `<img src=x onerror="alert(1)"> ä`);
  assert.equal(await page.locator("main img").count(), 0);
  assert.deepEqual(await wrong(page), []);
  await page.context().close();
});

test("the results of ended items are shown", async () => {
  await daemon.push("told", "json", "bytes", "long", "too-long", "nothing");
  await until("they have ended", async () => (await daemon.counts("told")).done === 7);
  const page = await open(browser, `${daemon.url}#/queue/told/ended`);
  await live(page);
  const entries = page.getByRole("list", { name: "Ended items" }).locator(".entry");
  const result = async (row) => {
    const entry = entries.filter({ hasText: row });
    await entry.getByRole("button").first().click();
    await entry.getByRole("list", { name: "Time line" }).waitFor();
    return entry.getByRole("region", { name: "Result" });
  };
  const json = await result("result of 29 B");
  assert.equal(await json.locator("pre").textContent(), '{\n  "sent": 12345678901234567890\n}');
  const bytes = await result("result of 3 B");
  assert.match(await bytes.locator("pre").textContent(), /^000000 {2}ff 00 78 +··x$/);
  assert.equal(await bytes.getByRole("tab", { name: "JSON" }).isDisabled(), true);
  const coming = page.waitForEvent("download");
  await bytes.getByRole("button", { name: "Download" }).click();
  assert.deepEqual([...readFileSync(await (await coming).path())], [255, 0, 120]);
  const long = await result("result of 13.9 kB");
  assert.equal((await long.locator("pre").textContent()).length, 2000);
  await long.getByRole("button", { name: "Show all of it" }).click();
  assert.equal((await long.locator("pre").textContent()).length, 13893);
  assert.equal(await long.getByRole("button", { name: "Show all of it" }).isVisible(), false);
  const nothing = await result("result of 0 B");
  await nothing.first().getByText("The result is empty.").waitFor();
  const none = entries.filter({ hasNotText: "result of" });
  assert.equal(await none.count(), 1);
  await none.getByRole("button").first().click();
  await none.getByText("too long, and not kept").waitFor();
  assert.equal(await none.getByRole("region", { name: "Result" }).count(), 0);
  assert.deepEqual(await wrong(page), []);
  await page.context().close();
});

test("pages without a row are passed over", async () => {
  const page = await open(browser, `${daemon.url}#/queue/flaky`);
  const item = { id: "0".repeat(24), state: "retrying", payload: "x", reason: "behind others", attempts: 1, due: new Date().toISOString() };
  // As where thousands of scheduled items are due before the first one that is tried again.
  await page.route("**/items?state=retrying*", async (route) => {
    const after = Number(new URL(route.request().url()).searchParams.get("after") ?? 0);
    const end = after < 30;
    await route.fulfill({ json: { items: end ? [] : [item], next: end ? String(after + 1) : null } });
  });
  await page.getByRole("tab", { name: "Retrying" }).click();
  await page.getByText("None in what was read so far").waitFor();
  await page.getByRole("button", { name: "Next" }).click();
  await page.getByText("behind others").waitFor();
  await page.context().close();
});

test("hostile names and payloads are texts", async () => {
  const page = await open(browser, daemon.url);
  await live(page);
  await page.getByText(HOSTILE, { exact: true }).click();
  await page.getByRole("heading", { name: HOSTILE }).waitFor();
  await page.locator(".opener", { hasText: "<svg onload" }).click();
  assert.equal(await page.locator(".payload").textContent(), `<svg onload="alert('payload')">`);
  assert.equal(await page.locator("main img, main .payload svg").count(), 0);
  assert.deepEqual(await wrong(page), []);
  await page.context().close();
});

test("a dead letter is retried, by keyboard alone", async () => {
  const page = await open(browser, daemon.url);
  await live(page);
  await tabTo(page, "bad");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "bad" }).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.id), "main");
  // The figure, which leads to the items, and then the tab.
  await tabTo(page, "Ready");
  await tabTo(page, "Ready");
  // Scheduled, retrying, running, dead.
  for (let steps = 0; steps < 4; steps += 1) await page.keyboard.press("ArrowRight");
  await page.locator(".opener").first().waitFor();
  assert.equal(await page.locator(".opener").count(), 3);
  await tabTo(page, await page.locator(".opener").first().textContent());
  await page.keyboard.press("Enter");
  const reason = page.locator(".reason");
  await reason.waitFor();
  assert.match(await reason.textContent(), /the <b>mail<\/b> server refused/);
  writeFileSync(daemon.path("mended"), "");
  await tabTo(page, "Requeue");
  await page.keyboard.press("Enter");
  await page.getByText("is ready again").waitFor();
  await until("it is done", async () => (await daemon.counts("bad")).done === 1);
  await until("the page shows it", async () => (await figure(page, "Dead").textContent()) === "2" && (await figure(page, "Done").textContent()) === "1");
  assert.equal(await page.locator(".opener").count(), 2);
  assert.deepEqual(await wrong(page), []);
  await page.context().close();
});

test("a figure leads to its items, and a dead letter gets another payload", async () => {
  const page = await open(browser, `${daemon.url}#/queue/bad`);
  await page.locator(".tiles").getByRole("link", { name: "Dead" }).click();
  const letter = page.locator(".opener").first();
  await letter.click();
  const id = await letter.locator("code").textContent();
  await page.getByRole("button", { name: "Edit the payload…" }).click();
  await page.getByRole("textbox", { name: "Payload" }).fill("<b>another</b>");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("The payload is changed.").waitFor();
  assert.match(await daemon.run("dead", "show", "bad", id), /<b>another<\/b>/);
  assert.deepEqual(await wrong(page), []);
  await page.context().close();
});

test("on a phone the items of a queue are in the first screen", async () => {
  const page = await open(browser, `${daemon.url}#/queue/bad`, { width: 390, height: 844, touch: true });
  await live(page);
  const tab = await page.getByRole("tab", { name: "Ready" }).boundingBox();
  assert.ok(tab.y < 844, `the tabs begin at ${tab.y}`);
  await page.getByText("The last hour").click();
  await page.locator(".plot").first().waitFor();
  assert.deepEqual(await wrong(page), []);
  await page.context().close();
});

test("dead letters are purged only after a confirmation", async () => {
  const page = await open(browser, `${daemon.url}#/queue/bad/dead`);
  await live(page);
  const letters = page.locator(".opener");
  await letters.first().waitFor();
  await page.getByRole("button", { name: "Purge all…" }).click();
  const dialog = page.getByRole("dialog");
  const sure = dialog.getByRole("button", { name: "Purge all" });
  assert.ok(await sure.isDisabled());
  await page.keyboard.press("Escape");
  assert.equal(await dialog.count(), 0);
  await page.getByRole("button", { name: "Purge all…" }).click();
  await dialog.getByRole("textbox").fill("bax");
  assert.ok(await sure.isDisabled());
  await dialog.getByRole("textbox").fill("bad");
  await sure.click();
  await page.getByText("2 dead letters deleted.").waitFor();
  await page.getByText("There are no dead letters.").waitFor();
  assert.equal((await daemon.counts("bad")).dead, 0);
  assert.deepEqual(await wrong(page), []);
  await page.context().close();
});

test("a queue is paused and resumed", async () => {
  const page = await open(browser, `${daemon.url}#/queue/quick`);
  await live(page);
  await page.getByRole("button", { name: "Pause…" }).click();
  await page.getByLabel("Reason").fill("the <i>bill</i> is unpaid");
  await page.getByRole("dialog").getByRole("button", { name: "Pause" }).click();
  await page.getByText(/Paused for all daemons since .*: the <i>bill<\/i> is unpaid/).waitFor();
  await daemon.push("quick", "kept back");
  await until("it is ready and stays", async () => (await figure(page, "Ready").textContent()) === "1");
  assert.equal((await daemon.counts("quick")).done, 0);
  await page.getByRole("button", { name: "Resume" }).click();
  await until("it is done", async () => (await figure(page, "Done").textContent()) === "1");
  await page.getByRole("button", { name: "Pause…" }).click();
  await page.getByLabel("This daemon only").check();
  await page.getByRole("dialog").getByRole("button", { name: "Pause" }).click();
  await page.getByText("Paused for this daemon alone").waitFor();
  await page.getByRole("button", { name: "Resume locally" }).click();
  await page.getByText("Paused for this daemon alone").waitFor({ state: "hidden" });
  assert.deepEqual(await wrong(page), []);
  await page.context().close();
});

test("who changed what is shown, the newest first", async () => {
  const reason = "<b>the bank</b> is down";
  await daemon.run("pause", HOSTILE, "--reason", reason);
  await daemon.run("resume", HOSTILE);
  const page = await open(browser, `${daemon.url}#/audit`);
  await live(page);
  const entries = page.locator(".entry");
  await entries.first().getByText("queue.resume").waitFor();
  const second = entries.nth(1);
  await second.getByText("queue.pause").waitFor();
  await second.getByText(HOSTILE, { exact: true }).waitFor();
  await second.getByText("local user").waitFor();
  await second.getByRole("button").click();
  await second.getByText(reason, { exact: true }).waitFor();
  await second.getByRole("link").click();
  await page.getByRole("heading", { level: 1 }).getByText(HOSTILE, { exact: true }).waitFor();
  assert.deepEqual(await wrong(page), []);
  await page.context().close();
});

test("workers of other programs are shown", async () => {
  const lease = (body, agent) => fetch(`${daemon.url}api/v1/queues/quick/lease`, {
    method: "POST", headers: { "Content-Type": "application/json", "User-Agent": agent }, body: JSON.stringify(body) });
  const page = await open(browser, `${daemon.url}#/queue/quick/workers`);
  await live(page);
  await page.getByText("No worker leases items").waitFor();
  // It waits until there is an item, which its consumer may get.
  const waiting = lease({ wait_ms: 10000, lease_ms: 60000 }, "a <b>worker</b>/1.0");
  await page.getByRole("cell", { name: "Waits for items" }).waitFor();
  await page.getByText("a <b>worker</b>/1.0").waitFor();
  await page.getByRole("tab", { name: "Workers (1)" }).waitFor();
  assert.equal((await (await waiting).json()).lease, null);
  await page.getByText("No worker leases items").waitFor();
  assert.deepEqual(await wrong(page), []);
  await page.context().close();
});

test("consumers and the daemon are shown", async () => {
  const page = await open(browser, `${daemon.url}#/consumers`);
  await page.getByText("52 consumers: ").waitFor();
  const row = page.locator("tbody tr", { hasText: "slow" });
  assert.equal(await row.locator('[data-label="State"]').textContent(), "Handling");
  await page.getByRole("link", { name: "Daemon" }).click();
  await page.getByText(daemon.path("db")).waitFor();
  assert.deepEqual(await wrong(page), []);
  await page.context().close();
});

test("it fits a phone", async () => {
  const page = await open(browser, daemon.url, { width: 360, height: 740, touch: true });
  await live(page);
  for (const where of ["#/", "#/queue/slow", "#/queue/bad/dead", "#/queue/kept/ended", "#/queue/told/ended", `#/queue/${encodeURIComponent(HOSTILE)}`, `#/queue/${LONG}`, "#/consumers", "#/daemon"]) {
    await page.evaluate((hash) => (location.hash = hash), where);
    await sleep(300);
    const opener = page.locator(".opener").first();
    if (await opener.count()) await opener.click();
    await sleep(100);
    const [wide, small] = await page.evaluate(() => {
      const shown = [...document.querySelectorAll("button, nav a, .brand")].filter((it) => it.checkVisibility());
      const low = shown.filter((it) => it.getBoundingClientRect().height < 43.5).map((it) => it.textContent);
      return [document.documentElement.scrollWidth, low];
    });
    assert.ok(wide <= 360, `${where} is ${wide} wide`);
    assert.deepEqual(small, [], where);
  }
  await page.context().close();
});

test("it can be read in the light and in the dark", async () => {
  const grounds = [];
  for (const dark of [false, true]) {
    const page = await open(browser, `${daemon.url}#/queue/slow`, { dark });
    await live(page);
    const colours = await page.evaluate(() => {
      const style = getComputedStyle(document.documentElement);
      const names = ["ground", "panel", "sunk", "warn-ground", "text", "muted", "accent", "ok", "warn", "bad"];
      return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    });
    const light = (hex) => {
      const parts = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255).map((it) => (it <= 0.04045 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4));
      return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
    };
    const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
    const pairs = ["text", "muted", "accent", "bad"].flatMap((text) => ["ground", "panel", "sunk"].map((ground) => [text, ground]));
    for (const [text, ground] of [...pairs, ["warn", "warn-ground"], ["warn", "panel"]])
      assert.ok(contrast(colours[text], colours[ground]) >= 4.5, `${text} on ${ground}, dark: ${dark}: ${contrast(colours[text], colours[ground])}`);
    grounds.push(await page.evaluate(() => getComputedStyle(document.body).backgroundColor));
    await page.context().close();
  }
  assert.notEqual(grounds[0], grounds[1]);
});

test("the page recovers after a daemon has restarted", async () => {
  const page = await open(browser, `${daemon.url}#/queue/slow`);
  await live(page);
  await daemon.stop();
  await page.getByText("No connection: the daemon").waitFor();
  assert.equal(await feedState(page), "lost");
  await page.getByRole("button", { name: "Refresh" }).click();
  await page.getByRole("alert").getByText("the daemon cannot be reached").waitFor();
  await daemon.start();
  await live(page);
  await until("figures again", async () => Number(await figure(page, "Ready").textContent()) > 4);
  assert.equal(await page.getByText("No connection").count(), 0);
  assert.deepEqual(await wrong(page), []);
  await page.context().close();
});

test("a browser signs in with a token or a link, and signs out", async () => {
  const secret = "0123456789abcdef-of-the-page";
  const kept = new Daemon('[queues.a]\nhandler = "log"\n', 'token-file = "SCRATCH/token"');
  writeFileSync(kept.path("token"), `${secret}\n`);
  chmodSync(kept.path("token"), 0o600);
  await kept.start();
  const page = await open(browser, kept.url);
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Token").fill("a wrong one that is long");
  await dialog.getByRole("button", { name: "Sign in" }).click();
  await dialog.getByText("does not know this token").waitFor();
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await page.getByRole("button", { name: "Enter the token" }).click();
  await dialog.getByLabel("Token").fill(secret);
  await dialog.getByRole("button", { name: "Sign in" }).click();
  await live(page);
  assert.equal(await page.locator("tbody tr").count(), 1);
  await page.reload();
  await live(page);
  assert.equal(page.url().includes(secret), false);
  const readable = await page.evaluate(() => document.cookie + JSON.stringify({ ...localStorage, ...sessionStorage }));
  assert.equal(readable, "{}", "scripts cannot read the cookie");
  await page.goto(`${kept.url}#/daemon`);
  await page.getByRole("button", { name: "Sign out" }).click();
  await dialog.getByLabel("Token").waitFor();
  assert.deepEqual(await wrong(page), []);
  await page.context().close();
  const link = (await kept.run("page", "--at", kept.listen)).trim();
  const other = await open(browser, link);
  await other.getByRole("heading", { name: "Sign in as the operator" }).waitFor();
  await other.getByRole("button", { name: "Sign in" }).click();
  await live(other);
  assert.equal(other.url().includes("sign-in"), false);
  await other.goto(link);
  await live(other);
  assert.deepEqual(await wrong(other), []);
  await other.context().close();
  const late = await open(browser, link);
  await late.getByRole("heading", { name: "does not work any more" }).waitFor();
  await late.context().close();
  await kept.remove();
});

test("where nothing can be changed nothing offers to", async () => {
  const still = await new Daemon('[queues.a]\nhandler = "log"\n', "read-only = true").start();
  const page = await open(browser, `${still.url}#/queue/a/dead`);
  await page.getByText("Live, read-only").waitFor();
  await page.getByText("There are no dead letters.").waitFor();
  for (const name of ["Pause…", "Requeue all", "Purge all…"]) assert.equal(await page.getByRole("button", { name }).count(), 0, name);
  await page.goto(`${still.url}#/daemon`);
  assert.equal(await page.getByRole("button", { name: "Reload the configuration" }).isVisible(), false);
  assert.deepEqual(await wrong(page), []);
  await page.context().close();
  await still.remove();
});

test("other queues of the database are named", async () => {
  await daemon.push("typo-of-a-name", "lost", "and lost");
  const page = await open(browser, daemon.url);
  await live(page);
  await page.getByText("1 other queue in the database, on which this daemon does not work: typo-of-a-name 2 ready").waitFor();
  await page.getByRole("link", { name: "typo-of-a-name" }).click();
  await page.getByRole("heading", { name: "typo-of-a-name" }).waitFor();
  assert.deepEqual(await wrong(page), []);
  await page.context().close();
});
