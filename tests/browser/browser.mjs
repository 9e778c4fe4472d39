// Debian's Chromium, and pages that remember what went wrong in them.
import { createRequire } from "node:module";
import { join } from "node:path";

// Where npm put playwright-core; it brings no browser of its own.
const { chromium } = createRequire(join(process.env.PLAYWRIGHT, "package.json"))("playwright-core");

const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];

export const launch = () => chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: FLAGS });

// A page in a session of its own. `page.wrong` has what a page should never do.
export async function open(browser, url, { width = 1280, height = 800, dark = false, touch = false } = {}) {
  const context = await browser.newContext({
    viewport: { width, height }, colorScheme: dark ? "dark" : "light", hasTouch: touch, isMobile: touch, locale: "en-GB",
  });
  // Before anything of the page's runs.
  await context.addInitScript(() => {
    window.violations = [];
    document.addEventListener("securitypolicyviolation", (event) => window.violations.push(`${event.violatedDirective}: ${event.blockedURI}`));
  });
  const page = await context.newPage();
  page.wrong = [];
  page.on("pageerror", (error) => page.wrong.push(`error: ${error.message}`));
  page.on("dialog", (dialog) => (page.wrong.push(`dialog: ${dialog.message()}`), dialog.dismiss()));
  page.on("request", (request) => {
    const to = new URL(request.url());
    if (to.protocol !== "blob:" && to.origin !== new URL(url).origin) page.wrong.push(`request to ${to.origin}`);
  });
  await page.goto(url);
  return page;
}

// What went wrong so far.
export async function wrong(page) {
  return [...page.wrong, ...(await page.evaluate(() => window.violations))];
}

export const feedState = (page) => page.locator("#feed").getAttribute("data-state");
export const live = (page) => page.locator("#feed[data-state=live]").waitFor();

// The text of a cell in the table of queues.
export const cell = (page, queue, label) => page.locator("tbody tr", { has: page.getByText(queue, { exact: true }) }).locator(`[data-label="${label}"]`);

// A figure above.
export const figure = (page, name) => page.locator(".tile", { has: page.getByText(name, { exact: true }) }).locator("dd");

// Goes with Tab to the element whose text begins so.
export async function tabTo(page, text) {
  for (let steps = 0; steps < 150; steps += 1) {
    await page.keyboard.press("Tab");
    const here = await page.evaluate(() => document.activeElement?.textContent ?? "");
    if (here.startsWith(text)) return;
  }
  throw new Error(`Tab never leads to ${text}`);
}
