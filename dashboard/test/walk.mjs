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

async function replica(seed, service) {
  const app = start("app", "--listen", "127.0.0.1:0", "--workers", "2", "--service", service, "--seed", seed, "--json");
  const line = await firstLine(app);
  return `http://${line.addr ?? line.listen}`;
}

/** A proxy with this configuration, on ports that are free. */
async function proxy(configuration) {
  const file = join(mkdtempSync(join(tmpdir(), "tidegate-")), "tidegate.toml");
  writeFileSync(file, `listen = "127.0.0.1:0"\nadmin = "127.0.0.1:0"\n${configuration}`);
  return firstLine(start("run", "-c", file, "--json"));
}

function load(listen, path, rate) {
  const load = start("load", `http://${listen}${path}`, "--rate", rate, "--duration", "600s", "--timeout", "2s");
  load.stdout.resume();
}

/** Two replicas, the second one slow, two classes, twice what can be served. */
async function overloaded() {
  const replicas = [await replica("1", "exp:30ms"), await replica("2", "exp:80ms")];
  const { listen, admin } = await proxy(`upstream = ${JSON.stringify(replicas)}
protect.target = "600ms"
protect.classes = [{ name = "gold", revenue = 5 }, { name = "bronze", revenue = 1 }]
classify = [{ class = "gold", path = "/gold" }]
`);
  load(listen, "/gold/basket", "20/s");
  load(listen, "/list", "120/s");
  load(listen, "/search", "40/s");
  await until("an overload", async () => (await application(admin)).overload.on === true);
  return { listen, admin, slow: replicas[1] };
}

async function walk() {
  const service = await overloaded();
  const { admin } = service;
  const executablePath = browsers.find((path) => path !== undefined && existsSync(path));
  assert(executablePath, "no Chromium: apt-get install chromium, or name one with CHROMIUM");
  const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
  try {
    const page = await browser.newPage({ viewport: { width: 1400, height: 900 } });
    const errors = [];
    page.on("pageerror", (error) => errors.push(String(error)));
    // A call that the proxy refuses, such as the channel's where there is none, is no error.
    page.on("console", (message) => message.type() === "error" && !message.text().includes("the server responded") && errors.push(message.text()));
    const foreign = [];
    page.on("request", (request) => {
      const { host, protocol } = new URL(request.url());
      if (protocol !== "data:" && host !== admin) foreign.push(request.url());
    });
    await page.goto(`http://${admin}/`);
    await answers(page, service);
    await steers(page, admin);
    await looks(browser, admin);
    await applications(browser);
    assert.deepEqual(foreign, [], "the page loads nothing from elsewhere");
    assert.deepEqual(errors, [], "no errors on the page");
  } finally {
    await browser.close();
  }
}

/** The id that a refusal of now carries. */
async function refusedId(listen) {
  return until("a refusal", async () => {
    const response = await fetch(`http://${listen}/list`);
    await response.text();
    return response.status === 503 && response.headers.get("x-request-id");
  });
}

/** The seven questions of an operator at 3 a.m., answered by the page alone. */
async function answers(page, { listen, admin, slow }) {
  const text = (selector) => page.locator(selector).innerText();
  // Is it overloaded, and since when? Who is shed?
  const headline = await until("the headline", async () => {
    const words = await text("#headline");
    return words.startsWith("Overloaded since") && words.includes("bronze") && words;
  });
  const said = await application(admin);
  const beginning = (words) => words.split(":").slice(0, 2).join(":");
  assert.equal(beginning(headline), beginning(said.headline));
  assert.match(headline, /bronze|gold/, "which class is shed and which is not");
  // What is the capacity? The figure of the page is that of the API at about the same time.
  await until("the same capacity", async () => {
    const { capacity_per_second: capacity } = await application(admin);
    const shown = parseFloat(await text("#capacity b"));
    return capacity > 0 && Math.abs(shown - capacity) < 0.1 * capacity + 1;
  });
  // Who is shed and why?
  assert.match(await text("#class-table"), /bronze[\s\S]*predicted/, "why bronze is shed");
  // Which replica is slow?
  await until("the slow replica", async () => {
    const row = page.locator("#replica-table tr", { hasText: slow });
    return /slow|ejected/.test(await row.innerText());
  });
  // Why was the request with this id refused?
  const id = await refusedId(listen);
  await page.getByLabel("request id").fill(id);
  await page.getByRole("button", { name: "Why was it refused?" }).click();
  await until("the answer", async () => /^Shed at .* in class bronze\./.test(await text("#answer")));
  // What would help?
  await until("advice", async () => {
    const advice = await text("#advice");
    return /more replicas? like|Bring back/.test(advice) && advice.includes("What helps");
  });
  await page.getByRole("button", { name: "overloads", exact: true }).click();
  assert.match(await text("#events"), /overload began/);
  await page.getByRole("button", { name: "refusals", exact: true }).click();
  assert.match(await text("#events"), /bronze, predicted: /);
  await page.getByRole("button", { name: "changes", exact: true }).click();
  await page.waitForSelector(".uplot canvas");
  for (const { url } of said.replicas) {
    assert((await text("#replica-table")).includes(url), "every replica is there");
  }
}

/** A change asks first, is put in force, and is in the list of events. */
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
  page.once("dialog", (dialog) => dialog.accept());
  await page.locator("#drain-0").click();
  await until("the replica drains", async () => (await application(admin)).replicas[0].state === "draining");
  await page.getByRole("button", { name: "undrain" }).waitFor({ timeout: PATIENCE_MS });
  page.once("dialog", (dialog) => dialog.accept());
  await page.getByRole("button", { name: "undrain" }).click();
  await until("the replica is back", async () => (await application(admin)).replicas[0].state !== "draining");
  await until("an overload again", async () => (await application(admin)).overload.on === true);
}

/** Two applications, the first one overloaded and with a shadow. */
async function applications(browser) {
  const { listen, admin } = await proxy(`protect.target = "600ms"
[[application]]
name = "shop"
paths = ["/shop"]
upstream = "${await replica("3", "exp:30ms")}"
shadow.protect = { target = "200ms" }
[[application]]
name = "search"
paths = ["/search"]
upstream = "${await replica("4", "exp:30ms")}"
`);
  load(listen, "/shop/list", "130/s");
  load(listen, "/search", "10/s");
  const status = async () => (await (await fetch(`http://${admin}/api/status`)).json()).applications;
  await until("an overload of the shop", async () => (await status()).shop.overload.on === true);
  assert.notEqual((await status()).search.overload.on, true, "the other one is not overloaded");
  const page = await browser.newPage({ viewport: { width: 1400, height: 900 } });
  await page.goto(`http://${admin}/`);
  await page.locator("#choose-shop").click();
  await until("the shadow", async () => /^The shadow would answer/.test(await page.locator("#shadow-headline").innerText()));
  assert.match(await page.locator("#shadow-table").innerText(), /default: target[\s\S]*600 ms[\s\S]*200 ms/);
  await page.locator("#choose-search").click();
  await until("the other application", async () => (await page.locator("#shadow-table").count()) === 0);
  assert(!(await page.locator("#headline").innerText()).startsWith("Overloaded"));
  await page.close();
  await looks(browser, admin, "applications-", "#choose-shop");
}

/** Pictures in both themes and three widths; nothing is wider than the screen. */
async function looks(browser, admin, name = "", choose = undefined) {
  mkdirSync(pictures, { recursive: true });
  for (const colorScheme of ["light", "dark"]) {
    for (const width of [390, 800, 1400]) {
      const page = await browser.newPage({ viewport: { width, height: 900 }, colorScheme });
      await page.goto(`http://${admin}/`);
      await page.waitForSelector("#class-table");
      await page.waitForSelector(".uplot canvas");
      if (choose !== undefined) {
        await page.locator(choose).click();
        await page.waitForSelector("#shadow-table");
      }
      await page.screenshot({ path: join(pictures, `${name}${colorScheme}-${width}.png`), fullPage: true });
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
