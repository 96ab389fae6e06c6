// Walks through the page under a real overload, in headless Chromium: two replicas of virtual
// capacity, a proxy with two classes, twice as many requests as can be served. What the page says
// must be what `/api/status` says. Pictures go to dashboard/pictures.
//
// TIDEGATE names the binary (default: target/debug/tidegate), CHROMIUM the browser.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createServer } from "node:http";
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
async function proxy(configuration, admin = 'admin = "127.0.0.1:0"\n') {
  const file = join(mkdtempSync(join(tmpdir(), "tidegate-")), "tidegate.toml");
  writeFileSync(file, `listen = "127.0.0.1:0"\n${admin}${configuration}`);
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
  mkdirSync(pictures, { recursive: true });
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
    await figures(page, admin);
    await usual(browser, admin);
    await looks(browser, admin);
    await steers(page, admin);
    await restarts(page);
    await readsOnly(browser);
    await applications(browser);
    assert.deepEqual(foreign, [], "the page loads nothing from elsewhere");
    assert.deepEqual(errors, [], "no errors on the page");
  } finally {
    await browser.close();
  }
}

/** A row of a table on the page, by heads. */
async function row(page, table, first) {
  const heads = await page.locator(`${table} thead th`).allInnerTexts();
  const rows = await page.locator(`${table} tbody tr`).all();
  for (const one of rows) {
    const cells = await one.locator("td").allInnerTexts();
    if (cells[0] === first) return Object.fromEntries(heads.map((head, index) => [head, cells[index]]));
  }
  return null;
}

/** A time of the page in seconds. */
function seconds(text) {
  const [value, unit] = text.split(" ");
  return parseFloat(value) / (unit === "ms" ? 1000 : 1);
}

/** The page is at most some seconds behind: a figure lies near those of the API before and after. */
function near(shown, first, second) {
  const [low, high] = [Math.min(first, second), Math.max(first, second)];
  return shown >= 0.75 * low - 2 && shown <= 1.25 * high + 2;
}

const CLASS_FIGURES = {
  "offered/s": (it) => it.recent.offered_per_second,
  "admitted/s": (it) => it.recent.admitted_per_second,
  "in target/s": (it) => it.recent.in_target_per_second,
  "shed/s": (it) => it.recent.shed_per_second,
  "earned/s": (it) => it.recent.revenue_earned_per_second,
};

/** What the page says of classes, replicas, paths and revenue is what `/api/status` says. */
async function figures(page, admin) {
  const both = async (check) => {
    const before = await application(admin);
    const shown = await check.rows();
    const after = await application(admin);
    return check.holds(shown, before, after);
  };
  for (const name of ["gold", "bronze"]) {
    await until(`the figures of class ${name}`, () =>
      both({
        rows: () => row(page, "#class-table", name),
        holds: (shown, before, after) =>
          Object.entries(CLASS_FIGURES).every(([head, of]) => near(parseFloat(shown[head]), of(before.classes[name]), of(after.classes[name]))) &&
          near(1000 * seconds(shown.p99), 1000 * before.classes[name].recent.response_p99_seconds, 1000 * after.classes[name].recent.response_p99_seconds),
      }),
    );
  }
  for (const { url } of (await application(admin)).replicas) {
    await until(`the figures of ${url}`, () =>
      both({
        rows: () => row(page, "#replica-table", url),
        holds: (shown, before, after) => {
          const [first, second] = [before, after].map((it) => it.replicas.find((one) => one.url === url));
          const words = { idle: "none waited yet", slow_start: "growing", searching: "searching", settled: "settled" };
          return (
            [first, second].some((it) => parseInt(shown.window) === it.window) &&
            [first, second].some((it) => shown.search.startsWith(words[it.phase])) &&
            [first, second].some((it) => /knee \d/.test(shown.search) === (it.knee !== null)) &&
            [first, second].some((it) => shown.state === it.state + (it.slow ? ", slow" : "")) &&
            near(parseFloat(shown["served/s"]), first.recent.served_per_second, second.recent.served_per_second) &&
            near(1000 * seconds(shown["service p50"]), 1000 * first.recent.service_p50_seconds, 1000 * second.recent.service_p50_seconds)
          );
        },
      }),
    );
  }
  await until("the figures of the paths", () =>
    both({
      rows: () => row(page, "#path-table", "/list"),
      holds: (shown, before, after) => {
        const [first, second] = [before, after].map((it) => it.top.paths.find((one) => one.name === "/list"));
        return near(parseFloat(shown["shed/s"]), first.shed_per_second, second.shed_per_second);
      },
    }),
  );
  await until("goodput and revenue", () =>
    both({
      rows: async () => [await page.locator("#goodput b").innerText(), await page.locator("#revenue b").innerText()],
      holds: ([goodput, revenue], before, after) =>
        near(parseFloat(goodput), before.recent.in_target_per_second, after.recent.in_target_per_second) &&
        near(parseFloat(revenue), before.recent.revenue_earned_per_second, after.recent.revenue_earned_per_second),
    }),
  );
}

/** Another process that answers at the same address numbers its events anew; the page shows them. */
async function restarts(page) {
  const served = "**/api/status";
  const again = new Date().toISOString();
  const asked = page.waitForRequest((request) => /api\/events.*after=0&/.test(request.url()), { timeout: PATIENCE_MS });
  await page.route(served, async (route) => {
    const status = await (await route.fetch()).json();
    await route.fulfill({ json: { ...status, started: again } });
  });
  await asked;
  await page.getByRole("button", { name: "overloads", exact: true }).click();
  await until("the events of the new process", async () => /overload began/.test(await page.locator("#events").innerText()));
  await page.unroute(served);
}

/** Without the token the page looks and does not steer; with it, it does. What the plane wants is shown. */
async function readsOnly(browser) {
  const plane = createServer((_, answer) => {
    answer.end(
      JSON.stringify({
        mode: "act",
        kill_switch: false,
        applications: [
          { name: "default", servers: 3, ready: 2, starting: 1, needed: 5, capacity: 60, predicted: { rate: 210, error: 30 }, reason: "210/s are forecast" },
        ],
      }),
    );
  });
  await new Promise((resolve) => plane.listen(0, "127.0.0.1", resolve));
  const { port } = plane.address();
  const { admin } = await proxy(
    `upstream = "${await replica("5", "exp:30ms")}"\nadmin = { addr = "127.0.0.1:0", token = "open sesame, I say", read_only_without_token = true, plane = "http://127.0.0.1:${port}" }\n`,
    "",
  );
  const page = await browser.newPage({ viewport: { width: 1400, height: 900 } });
  await page.goto(`http://${admin}/`);
  await page.locator("#read-only").waitFor({ timeout: PATIENCE_MS });
  assert.equal(await page.locator("#toggle-dry-run").count(), 0, "no button without the token");
  assert.equal(await page.locator("#drain-0").count(), 0);
  await until("what the plane wants", async () => /replicas wanted\s*5/.test(await page.locator("#plane-table").innerText()));
  assert.match(await page.locator("#plane-table").innerText(), /210\/s, from 180 to 240/);
  assert.equal(await page.locator("#plane-reason").innerText(), "210/s are forecast");
  await page.locator("#enter-token").click();
  await page.locator("#token").fill("wrong");
  await page.getByRole("button", { name: "Use it" }).click();
  await until("that it is wrong", async () => /not valid/.test(await page.locator("#head").innerText()));
  await page.locator("#token").fill("open sesame, I say");
  await page.getByRole("button", { name: "Use it" }).click();
  page.once("dialog", (dialog) => dialog.accept());
  await page.getByRole("button", { name: "Dry run: off" }).click();
  await page.getByRole("button", { name: "Dry run: on" }).waitFor({ timeout: PATIENCE_MS });
  await page.screenshot({ path: join(pictures, "plane.png"), fullPage: true });
  await page.close();
  plane.close();
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
  await page.getByRole("button", { name: "What became of it?" }).click();
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
  await page.getByRole("button", { name: "limits", exact: true }).click();
  assert.match(await text("#events"), / because /, "why a limit changed");
  assert.doesNotMatch(await text("#events"), /[a-z]_[a-z]/, "no words of the code");
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

/** The picture of the README: an overload as it usually is, with the important class left alone. */
async function usual(browser, admin) {
  const page = await browser.newPage({ viewport: { width: 1400, height: 1000 }, colorScheme: "light" });
  await page.goto(`http://${admin}/`);
  await page.waitForSelector(".uplot canvas");
  const figure = async (id) => parseFloat(await page.locator(`${id} b`).innerText());
  await until("an overload that leaves gold alone", async () => {
    const plain = (await page.locator("#headline").innerText()).includes("gold untouched");
    return plain && (await figure("#goodput")) <= (await figure("#capacity"));
  })
    .then(() => page.screenshot({ path: join(pictures, "page.png") }))
    .catch(() => console.log("gold is shed a little as well: there is no new page.png"));
  await page.close();
}

/** Pictures in both themes and three widths; nothing is wider than the screen. */
async function looks(browser, admin, name = "", choose = undefined) {
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
