// Writes the picture of the page that the README shows.
//
//   KVQUEUE=... PLAYWRIGHT=... node tests/browser/screenshot.mjs docs/page.png
import { launch, live, open } from "./browser.mjs";
import { Daemon, sleep, until } from "./daemon.mjs";

const works = (seconds) => `handler = "exec"\nhandler-config = { command = ["sleep", "${seconds}"] }`;
const daemon = await new Daemon(`
[queues.mail]
${works(0.1)}
consumers = [{ k = 10, count = 4 }]
[queues.invoices]
${works(0.3)}
consumers = [{ k = 5, count = 2 }]
delivery = "exactly-once"
[queues.thumbnails]
${works(2)}
consumers = [{ k = 1, count = 6 }]
[queues.webhooks]
handler = "exec"
handler-config = { command = ["sh", "-c", "read -r item; test $((item % 40)) -ne 7 || { echo connection refused >&2; exit 1; }; sleep 0.05"] }
retry = { max-attempts = 1 }
consumers = [{ k = 10, count = 3 }]
[queues.reports]
handler = "log"
`).start();
const browser = await launch();
const numbers = (count) => Array.from({ length: count }, (_, at) => String(at + 1));
let pushing = true;
const pushes = (async () => {
  while (pushing) {
    await Promise.all([daemon.push("mail", ...numbers(90)), daemon.push("invoices", ...numbers(12)),
      daemon.push("thumbnails", ...numbers(9)), daemon.push("webhooks", ...numbers(80))]);
    await sleep(900);
  }
})();
const page = await open(browser, daemon.url, { width: 1200, height: 600 });
await live(page);
await until("dead letters", async () => (await daemon.counts("webhooks")).dead > 2);
await sleep(15000);
await page.screenshot({ path: process.argv[2] });
pushing = false;
await pushes;
await browser.close();
await daemon.remove();
