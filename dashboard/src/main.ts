// The page: asks the proxy once a second and says what it does, words first.

import "uplot/dist/uPlot.min.css";
import "./style.css";
import type { Application, Event, History, Status } from "./api";
import { Refused, get, hasToken, post, setToken } from "./api";
import { Charts } from "./charts";
import { clock, h, ms, rate, replace, table } from "./dom";

const EVERY_MS = 1000;
const HISTORY_EVERY = 5;

const page = document.getElementById("page")!;
const parts = Object.fromEntries(
  ["top", "now", "warnings", "classes", "replicas", "history", "why", "steering", "channel"].map(
    (id) => [id, h("section", { id })],
  ),
) as Record<string, HTMLElement>;
page.append(...Object.values(parts));

const plots = h("div", { class: "plots" });
const charts = new Charts(plots);
let chosen: string | null = null;
let events: Event[] = [];
let round = 0;
let request = "";
let answer: Node | null = null;

// --- Now -------------------------------------------------------------------------------------

function top(status: Status): void {
  const names = Object.keys(status.applications);
  const choose = h(
    "select",
    { change: ((event: InputEvent) => (chosen = (event.target as HTMLSelectElement).value)) as never },
    ...names.map((name) => h("option", { value: name, selected: name === chosen }, name)),
  );
  replace(
    parts.top!,
    h("strong", {}, "Tidegate"),
    h("span", { class: "muted" }, `${status.version} · up since ${clock(status.started)}`),
    names.length > 1 && choose,
  );
}

function tile(id: string, name: string, value: string, note = ""): HTMLElement {
  return h("div", { class: "tile", id }, h("span", { class: "muted" }, name), h("b", {}, value), h("small", {}, note));
}

function now(application: Application): void {
  const recent = application.recent;
  const overload = application.overload;
  const state = overload.on ? "bad" : "good";
  const lost = recent.revenue_lost_per_second;
  replace(
    parts.now!,
    h("p", { id: "headline", class: state }, application.headline),
    h(
      "div",
      { class: "tiles" },
      tile("offered", "offered", `${rate(recent.offered_per_second)}/s`),
      tile("goodput", "in target", `${rate(recent.in_target_per_second)}/s`, "goodput"),
      tile("capacity", "capacity", `${rate(application.capacity_per_second)}/s`, "measured"),
      tile("shed", "shed", `${rate(recent.shed_per_second)}/s`),
      tile("p99", "p99", ms(recent.response_p99_seconds), `p50 ${ms(recent.response_p50_seconds)}, p95 ${ms(recent.response_p95_seconds)}`),
      tile("queue", "waiting", String(application.queue.requests), "requests"),
      lost + recent.revenue_earned_per_second > 0 &&
        tile("revenue", "revenue", `${rate(recent.revenue_earned_per_second)}/s`, `${rate(lost)}/s lost`),
    ),
  );
}

function warnings(status: Status, application: Application): void {
  const all = [...status.warnings, ...application.warnings];
  const lines = all.map((it) => h("li", {}, h("b", {}, `since ${clock(it.since)} `), it.text));
  if (status.reload.error !== null) lines.push(h("li", {}, `the file is not in force: ${status.reload.error}`));
  replace(parts.warnings!, lines.length > 0 && h("ul", { class: "warnings" }, ...lines));
}

function classes(application: Application): void {
  const all = Object.entries(application.classes).sort(([, a], [, b]) => a.rank - b.rank);
  const reasons = (by: Record<string, number>) =>
    Object.entries(by)
      .map(([reason, value]) => `${reason} ${rate(value)}/s`)
      .join(", ");
  const rows = all.map(([name, { recent, target_seconds }]) => [
    name,
    rate(recent.offered_per_second),
    rate(recent.admitted_per_second),
    rate(recent.in_target_per_second),
    rate(recent.shed_per_second),
    reasons(recent.shed_per_second_by_reason) || "–",
    rate(recent.browned_out_per_second),
    ms(recent.response_p50_seconds),
    ms(recent.response_p99_seconds),
    ms(target_seconds),
  ]);
  const heads = ["class", "offered/s", "admitted/s", "in target/s", "shed/s", "shed by", "browned out/s", "p50", "p99", "target"];
  const marks = all.map(([, { recent }]) => (recent.shed_per_second > 0.05 ? "bad" : ""));
  replace(parts.classes!, h("h2", {}, "Classes"), table("class-table", heads, rows, marks));
}

// --- Replicas --------------------------------------------------------------------------------

function replicas(application: Application): void {
  const rows = application.replicas.map((it) => [
    it.url,
    it.state,
    clock(it.since),
    rate(it.window),
    rate(it.knee),
    rate(it.in_flight),
    rate(it.recent.served_per_second),
    ms(it.recent.service_p50_seconds),
    ms(it.recent.service_p99_seconds),
    typeof it.phase === "string" ? it.phase : "–",
    rate(it.weight),
  ]);
  const heads = ["replica", "state", "since", "window", "knee", "in flight", "served/s", "p50", "p99", "search", "weight"];
  const marks = application.replicas.map((it) => (it.state === "up" ? "" : "warn"));
  replace(parts.replicas!, h("h2", {}, "Replicas"), table("replica-table", heads, rows, marks));
}

// --- History ---------------------------------------------------------------------------------

function history(): void {
  const buttons = charts.spans.map((name) =>
    h(
      "button",
      {
        type: "button",
        "aria-pressed": String(name === charts.span),
        click: (() => {
          charts.span = name;
          history();
          void draw();
        }) as never,
      },
      name,
    ),
  );
  replace(parts.history!, h("h2", {}, "History"), h("div", { class: "buttons" }, ...buttons), plots);
}

async function draw(): Promise<void> {
  const name = chosen === null ? "" : `?application=${encodeURIComponent(chosen)}`;
  charts.show(await get<History>(`/api/history${name}`), events);
}

// --- Why -------------------------------------------------------------------------------------

/** What an event says, in words. */
export function words(event: Event): string {
  const number = (name: string) => rate(event[name] as number);
  switch (event.type) {
    case "overload":
      return event.on
        ? `overload began: ${number("offered_per_second")}/s arrive, ${number("drain_per_second")}/s can be served`
        : "overload ended";
    case "window":
      return `window of replica ${event.replica}: ${event.from} → ${event.to} (${event.cause})`;
    case "step":
      return `${event.controller}: measured ${number("measured")} for setpoint ${number("setpoint")}, command ${number("output")}`;
    case "mode":
      return `mode ${event.from} → ${event.to}`;
    case "health":
      return `replica ${event.replica} ${event.up ? "gets requests again" : "gets no requests"}`;
    case "aside":
      return `replica ${event.replica} ${event.on ? "is ejected" : "is back"}: ${ms(event.seconds as number)}, the others ${ms(event.others_seconds as number)}`;
    case "switch":
      return `${String(event.name).replace("_", " ")} ${event.on ? "on" : "off"}`;
    case "shed":
      return `${event.class}: ${event.words}`;
    case "notice":
      return String(event.line);
    default: {
      const { id: _id, time: _time, type: _type, ...rest } = event;
      return Object.entries(rest)
        .map(([name, value]) => `${name} ${JSON.stringify(value)}`)
        .join(", ");
    }
  }
}

function why(): void {
  if (parts.why!.contains(document.activeElement)) return;
  const shown = events.slice(-40).reverse();
  const list = shown.map((event) =>
    h("li", { class: event.type }, h("time", {}, clock(event.time)), h("b", {}, event.type), h("span", {}, words(event))),
  );
  const find = h(
    "form",
    { submit: ((event: SubmitEvent) => void lookUp(event)) as never },
    h("input", { name: "request", placeholder: "request id of a refused request", value: request, "aria-label": "request id" }),
    h("button", {}, "Why?"),
  );
  replace(
    parts.why!,
    h("h2", {}, "Why"),
    find,
    answer,
    list.length > 0 ? h("ul", { class: "events", id: "events" }, ...list) : h("p", { class: "muted" }, "Nothing has changed yet."),
  );
}

async function lookUp(event: SubmitEvent): Promise<void> {
  event.preventDefault();
  request = String(new FormData(event.target as HTMLFormElement).get("request")).trim();
  (document.activeElement as HTMLElement | null)?.blur();
  try {
    const found = await get<{ words: string }>(`/api/requests?id=${encodeURIComponent(request)}`);
    answer = h("p", { id: "answer" }, found.words);
  } catch (error) {
    answer = h("p", { id: "answer", class: "muted" }, String((error as Error).message));
  }
  why();
}

// --- Steering --------------------------------------------------------------------------------

async function steer(question: string, path: string, body: unknown): Promise<void> {
  if (!window.confirm(`${question}\n\nIt takes effect at once and is written to the log.`)) return;
  const note = document.getElementById("steered")!;
  try {
    await post(path, body);
    note.textContent = "Done.";
  } catch (error) {
    note.textContent = String((error as Error).message);
  }
}

function toggle(name: string, path: string, state: { on: boolean; since: string }, means: string): HTMLElement {
  const to = !state.on;
  const act = () => steer(`${name} ${to ? "on" : "off"}?`, path, { enabled: to });
  return h(
    "div",
    { class: state.on ? "switch on" : "switch" },
    h("button", { type: "button", click: (() => void act()) as never }, `${name}: ${state.on ? "on" : "off"}`),
    h("small", {}, `${means}${state.on ? ` · on since ${clock(state.since)}` : ""}`),
  );
}

const MODES = ["auto", "static", "step", "pi", "pid", "lqr", "ilac", "sentry", "off"];

function steering(status: Status, application: Application): void {
  if (parts.steering!.contains(document.activeElement)) return;
  const note = document.getElementById("steered")?.textContent ?? "";
  const mode = h(
    "select",
    {
      "aria-label": "mode",
      change: ((event: InputEvent) => {
        const select = event.target as HTMLSelectElement;
        const to = select.value;
        select.blur();
        void steer(`Mode ${to}?`, "/api/mode", { mode: to });
      }) as never,
    },
    ...MODES.map((name) => h("option", { value: name, selected: name === application.mode.name }, name)),
  );
  const target = h(
    "form",
    {
      submit: ((event: SubmitEvent) => {
        event.preventDefault();
        const to = String(new FormData(event.target as HTMLFormElement).get("target")).trim();
        (document.activeElement as HTMLElement | null)?.blur();
        void steer(`Target ${to || "found by measurement"}?`, "/api/parameters", { target: to || null });
      }) as never,
    },
    h("input", { name: "target", placeholder: "300ms", "aria-label": "target" }),
    h("button", {}, "Set target"),
  );
  replace(
    parts.steering!,
    h("h2", {}, "Steering"),
    h(
      "div",
      { class: "steering" },
      toggle("Kill switch", "/api/kill-switch", application.kill_switch, "admits everything"),
      toggle("Dry run", "/api/dry-run", application.dry_run, "decides and counts, sheds nothing"),
      toggle("Drain", "/api/drain", application.draining, "refuses everything new"),
      h("label", {}, "Mode ", mode),
      target,
      status.reload.file !== null &&
        h("button", { type: "button", click: (() => void steer("Reload the file?", "/api/reload", {})) as never }, "Reload the file"),
    ),
    h("p", { id: "steered", class: "muted" }, note),
    status.reload.changed_live && h("p", { class: "muted" }, "Parameters were changed live; reloading the file drops that."),
  );
}

// --- Channel ---------------------------------------------------------------------------------

let withChannel = true;

async function channel(): Promise<void> {
  if (!withChannel) return;
  try {
    const state = await get<Record<string, unknown>>("/api/channel");
    const rows = Object.entries(state).filter(([, value]) => typeof value !== "object");
    replace(parts.channel!, h("h2", {}, "Channel"), table("channel-table", ["", "value"], rows.map(([name, value]) => [name, String(value)])));
  } catch {
    withChannel = false;
  }
}

// --- The loop --------------------------------------------------------------------------------

function askForToken(): void {
  replace(
    parts.top!,
    h("strong", {}, "Tidegate"),
    h(
      "form",
      {
        submit: ((event: SubmitEvent) => {
          event.preventDefault();
          setToken(String(new FormData(event.target as HTMLFormElement).get("token")));
          void loop();
        }) as never,
      },
      h("label", {}, hasToken() ? "That token is not valid. " : "This proxy asks for its token (admin.token). "),
      h("input", { name: "token", type: "password", "aria-label": "token" }),
      h("button", {}, "Look"),
    ),
  );
}

async function look(): Promise<void> {
  const status = await get<Status>("/api/status");
  const names = Object.keys(status.applications);
  if (chosen === null || !names.includes(chosen)) chosen = names[0] ?? null;
  const application = chosen === null ? undefined : status.applications[chosen];
  if (application === undefined) return;
  top(status);
  now(application);
  warnings(status, application);
  classes(application);
  replicas(application);
  steering(status, application);
  const last = events[events.length - 1]?.id ?? 0;
  const types = "overload,window,step,mode,health,aside,standing,handover,target,policing,switch,shed,notice";
  const more = await get<Event[]>(`/api/events?follow=false&after=${last}&types=${types}`);
  events = [...events, ...more].slice(-1000);
  why();
  if (round++ % HISTORY_EVERY === 0) {
    await draw();
    await channel();
  }
}

async function loop(): Promise<void> {
  try {
    await look();
    document.body.classList.remove("stale");
  } catch (error) {
    if (error instanceof Refused && error.status === 401) return askForToken();
    document.body.classList.add("stale");
    const gone = "The proxy does not answer; what is shown is the last that is known.";
    replace(parts.top!, h("strong", {}, "Tidegate"), h("span", { class: "bad" }, error instanceof Refused ? error.message : gone));
  }
  setTimeout(() => void loop(), EVERY_MS);
}

history();
void loop();
