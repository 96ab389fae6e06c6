// Walks through the page under a real overload, in headless Chromium: two replicas of virtual
// capacity, a proxy with two classes, twice as many requests as can be served. What the page says
// must be what `/api/status` says. Pictures go to dashboard/pictures.
//
// TIDEGATE names the binary (default: target/debug/tidegate), CHROMIUM the browser.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const here = dirname(fileURLToPath(import.meta.url));
const pictures = join(here, "..", "pictures");
const binary = process.env.TIDEGATE ?? join(here, "../../target/debug/tidegate");
const browsers = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const PATIENCE_MS = 60_000;

const children = [];
function start(...args) {
  const child = spawn(binary, args, { stdio: ["ignore", "pipe", "inherit"] });
  children.push(child);
  return child;
}

/** The first line that a command prints, as JSON. */
function firstLine(child) {
  return new Promise((resolve, reject) => {
    let text = "";
    child.stdout.on("data", (data) => {
      text += data;
      if (text.includes("\n")) resolve(JSON.parse(text.split("\n")[0]));
    });
    child.on("exit", (code) => reject(new Error(`${child.spawnargs.join(" ")} ended with ${code}`)));
  });
}

async function until(what, holds) {
  const end = Date.now() + PATIENCE_MS;
  for (;;) {
    const value = await holds().catch(() => null);
    if (value) return value;
    if (Date.now() > end) throw new Error(`it never happened: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

async function application(admin) {
  const response = await fetch(`http://${admin}/api/status`);
  return (await response.json()).applications.default;
}

async function walk() {
  const replicas = [];
  for (const seed of ["1", "2"]) {
    const app = start("app", "--listen", "127.0.0.1:0", "--workers", "2", "--service", "exp:40ms", "--seed", seed, "--json");
    const line = await firstLine(app);
    replicas.push(`http://${line.addr ?? line.listen}`);
  }
  const file = join(mkdtempSync(join(tmpdir(), "tidegate-")), "tidegate.toml");
  writeFileSync(
    file,
    `listen = "127.0.0.1:0"
admin = "127.0.0.1:0"
upstream = ${JSON.stringify(replicas)}
protect.target = "400ms"
protect.classes = [{ name = "gold" }, { name = "bronze" }]
classify = [{ class = "gold", path = "/gold" }]
`,
  );
  const { listen, admin } = await firstLine(start("run", "-c", file, "--json"));
  const load = (path, rate) => start("load", `http://${listen}${path}`, "--rate", rate, "--duration", "120s", "--timeout", "2s");
  load("/gold/a", "30/s");
  load("/b", "170/s");
  await until("an overload", async () => (await application(admin)).overload.on === true);

  const executablePath = browsers.find((path) => path !== undefined && existsSync(path));
  assert(executablePath, "no Chromium: apt-get install chromium, or name one with CHROMIUM");
  const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
  try {
    const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
    const errors = [];
    page.on("pageerror", (error) => errors.push(String(error)));
    page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
    const foreign = [];
    page.on("request", (request) => {
      const { host, protocol } = new URL(request.url());
      if (protocol !== "data:" && host !== admin) foreign.push(request.url());
    });
    await page.goto(`http://${admin}/`);
    await answers(page, admin);
    await steers(page, admin);
    await looks(browser, admin);
    assert.deepEqual(foreign, [], "the page loads nothing from elsewhere");
    const real = errors.filter((text) => !text.includes("409"));
    assert.deepEqual(real, [], "no errors on the page");
  } finally {
    await browser.close();
  }
}

/** The questions of an operator at 3 a.m., answered by the page alone. */
async function answers(page, admin) {
  const text = (selector) => page.locator(selector).innerText();
  const headline = await until("the headline", async () => {
    const words = await text("#headline");
    return words.startsWith("Overloaded since") && words.includes("bronze") && words;
  });
  // Both change every second; since when and which class do not.
  const said = await application(admin);
  const start = (words) => words.split(":").slice(0, 2).join(":");
  assert.equal(start(headline), start(said.headline));
  assert.match(headline, /gold untouched/, "which class is shed and which is not");
  // The figures of the page are those of the API at about the same time.
  await until("the same figures", async () => {
    const before = await application(admin);
    const shown = parseFloat(await text("#capacity b"));
    return Math.abs(shown - before.capacity_per_second) < 0.1 * before.capacity_per_second + 1;
  });
  const capacity = parseFloat(await text("#capacity b"));
  assert(capacity > 50 && capacity < 150, `two replicas of 50/s each: ${capacity}`);
  const classes = await text("#class-table");
  assert.match(classes, /bronze[\s\S]*predicted/, "why it is shed");
  for (const replica of said.replicas) {
    assert((await text("#replica-table")).includes(replica.url), "every replica is there");
  }
  assert.match(await text("#events"), /overload began/);
  await page.waitForSelector(".uplot canvas");
}

/** A switch asks first, is put in force, and is in the list of events. */
async function steers(page, admin) {
  page.once("dialog", (dialog) => dialog.dismiss());
  await page.getByRole("button", { name: "Dry run: off" }).click();
  assert.equal((await application(admin)).dry_run.on, false, "nothing happens unconfirmed");
  page.once("dialog", (dialog) => dialog.accept());
  await page.getByRole("button", { name: "Dry run: off" }).click();
  await until("the dry run", async () => (await application(admin)).dry_run.on);
  await page.getByRole("button", { name: "Dry run: on" }).waitFor({ timeout: PATIENCE_MS });
  await until("its line", async () => (await page.locator("#events").innerText()).includes("dry run on"));
  page.once("dialog", (dialog) => dialog.accept());
  await page.getByRole("button", { name: "Dry run: on" }).click();
  await until("the end of the dry run", async () => !(await application(admin)).dry_run.on);
}

/** Pictures in both themes and three widths; nothing is wider than the screen. */
async function looks(browser, admin) {
  mkdirSync(pictures, { recursive: true });
  for (const colorScheme of ["light", "dark"]) {
    for (const width of [390, 820, 1280]) {
      const page = await browser.newPage({ viewport: { width, height: 900 }, colorScheme });
      await page.goto(`http://${admin}/`);
      await page.waitForSelector("#class-table");
      await page.waitForSelector(".uplot canvas");
      await page.screenshot({ path: join(pictures, `${colorScheme}-${width}.png`), fullPage: true });
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      assert(wide <= width, `${width} px: the page is ${wide} px wide`);
      await page.close();
    }
  }
}

try {
  await walk();
  console.log(`ok; pictures are in ${pictures}`);
} finally {
  children.forEach((child) => child.kill());
}
