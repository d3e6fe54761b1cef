// Drives Chromium for tests/ui: a command as JSON on each line of the input, an answer on each line
// of the output. What the tests are about is in Python, beside the cluster that they look at.

import { createInterface } from "node:readline";
import { createRequire } from "node:module";

const require = createRequire(new URL("../../webui/package.json", import.meta.url));
const { chromium } = require("playwright-core");
const axe = require.resolve("axe-core/axe.min.js");

// Nothing but the cluster is to be reached, and what a browser does by itself is switched off.
const FLAGS = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"];
const browser = await chromium.launch({
  executablePath: process.argv[2],
  headless: true,
  args: process.getuid?.() === 0 ? [...FLAGS, "--no-sandbox"] : FLAGS,
});

let page;
let troubles = [];

async function open({ width, height, dark }) {
  await page?.context().close();
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: dark ? "dark" : "light", reducedMotion: "reduce" });
  context.setDefaultTimeout(30_000);
  page = await context.newPage();
  troubles = [];
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning") troubles.push(`${message.text()} (${message.location().url})`);
  });
  page.on("pageerror", (error) => troubles.push(String(error.stack ?? error)));
}

async function judge() {
  // Through the browser's own door, which the page's content security policy does not guard.
  await page.evaluate(await (await import("node:fs/promises")).readFile(axe, "utf8"));
  const found = await page.evaluate(async () => (await globalThis.axe.run(document, { resultTypes: ["violations"] })).violations);
  return found
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`);
}

const commands = {
  open,
  goto: ({ url }) => page.goto(url, { waitUntil: "load" }),
  hash: ({ hash }) => page.evaluate((next) => { location.hash = next; }, hash),
  reload: () => page.reload(),
  wait: ({ selector, state }) => page.waitForSelector(selector, { state: state ?? "visible" }),
  text: ({ selector }) => page.locator(selector).first().innerText(),
  texts: ({ selector }) => page.locator(selector).allInnerTexts(),
  amount: ({ selector }) => page.locator(selector).count(),
  click: ({ selector }) => page.locator(selector).first().click(),
  fill: ({ selector, value }) => page.locator(selector).first().fill(value),
  choose: ({ selector, value }) => page.locator(selector).first().selectOption(value),
  press: ({ key }) => page.keyboard.press(key),
  evaluate: ({ script }) => page.evaluate(script),
  attribute: ({ selector, name }) => page.locator(selector).first().getAttribute(name),
  disabled: ({ selector }) => page.locator(selector).first().isDisabled(),
  // Nothing is lit because the mouse was left there.
  picture: async ({ path, full }) => {
    await page.mouse.move(0, 0);
    await page.screenshot({ path, fullPage: Boolean(full) });
  },
  judge,
  // The API says something else than it would: a path, as a regular expression, and the answer to it.
  pretend: ({ path, status, body }) => page.route((url) => new RegExp(`/api/${path}$`).test(url.pathname), (route) => (status === 0 ? route.abort() : route.fulfill({ status, contentType: "application/json", body: JSON.stringify(body) }))),
  pretend_no_more: () => page.unrouteAll(),
  upload: ({ selector, path }) => page.locator(selector).setInputFiles(path),
  // The text of the file that a click brings.
  download: async ({ selector }) => {
    const [coming] = await Promise.all([page.waitForEvent("download"), page.locator(selector).first().click()]);
    return (await import("node:fs/promises")).readFile(await coming.path(), "utf8");
  },
  clipboard: async () => {
    await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
    return page.evaluate(() => navigator.clipboard.readText());
  },
  troubles: () => troubles.splice(0),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { command, ...given } = JSON.parse(line);
  if (command === "quit") break;
  let answer;
  try {
    answer = { value: (await commands[command](given)) ?? null };
    if (!["text", "texts", "amount", "attribute", "disabled", "evaluate", "judge", "troubles", "clipboard", "download"].includes(command)) answer = { value: null };
  } catch (error) {
    answer = { error: String(error.message ?? error), page: await page?.locator("body").innerText().catch(() => "") };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
await browser.close();
process.exit(0);
