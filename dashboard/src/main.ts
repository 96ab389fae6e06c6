// The page: asks the proxy once a second and says what it does, words first.

import "uplot/dist/uPlot.min.css";
import "./style.css";
import type { Event, History, Status } from "./api";
import { Refused, get, hasToken, setToken } from "./api";
import { Charts } from "./charts";
import { clock, h, replace, table } from "./dom";
import { applications, classes, help, now, replicas } from "./now";
import { shadow } from "./shadow";
import { steering } from "./steer";
import { why } from "./why";

const EVERY_MS = 1000;
const HISTORY_EVERY = 5;
const EVENTS_KEPT = 1000;
const TYPES = "overload,window,step,mode,health,ejected,standing,handover,target,policing,switch,shed,notice";

const PARTS = ["top", "applications", "now", "help", "classes", "replicas", "shadow", "history", "why", "steering", "channel"] as const;
const parts = Object.fromEntries(PARTS.map((id) => [id, h("section", { id })])) as Record<(typeof PARTS)[number], HTMLElement>;
document.getElementById("page")!.append(...Object.values(parts));

const plots = h("div", { class: "plots" });
const charts = new Charts(plots);
let chosen = decodeURIComponent(location.hash.slice(1));
let events: Event[] = [];
let round = 0;

function top(status: Status): void {
  const commit = status.commit === null ? "" : ` (${status.commit.slice(0, 9)})`;
  const text = `${status.version}${commit} · up since ${clock(status.started)} · ${status.connections} connections · times in UTC`;
  replace(parts.top, h("strong", {}, "Tidegate"), h("span", { class: "muted" }, text));
}

function choose(name: string): void {
  chosen = name;
  location.hash = encodeURIComponent(name);
  round = 0;
  void look();
}

function history(): void {
  const pick = (name: string) => () => {
    charts.span = name;
    history();
    void draw();
  };
  const buttons = charts.spans.map((name) =>
    h("button", { type: "button", "aria-pressed": String(name === charts.span), click: pick(name) as never }, name),
  );
  const note = h("small", {}, "Marks: overloads (red), changes by an operator or by the file (grey).");
  parts.history.replaceChildren(h("h2", {}, "History"), h("div", { class: "buttons" }, ...buttons), plots, note);
}

async function draw(): Promise<void> {
  const mine = events.filter((it) => it.application === undefined || it.application === chosen);
  charts.show(await get<History>(`/api/history?application=${encodeURIComponent(chosen)}`), mine);
}

// --- Channel ---------------------------------------------------------------------------------

const CHANNEL: Record<string, string> = {
  seq: "message in force",
  command: "share or delay in force",
  delay_s: "mean delay (s)",
  setpoint_s: "wanted delay (s)",
  clients: "clients seen lately",
  listeners: "listeners",
  relays: "relays",
  offenders: "offenders",
};
let withChannel = true;

async function channel(): Promise<void> {
  if (!withChannel) return;
  try {
    const state = await get<Record<string, unknown>>("/api/channel");
    const known = Object.entries(CHANNEL).filter(([name]) => typeof state[name] !== "object" && state[name] !== undefined);
    const strategy: [string, string][] = state.strategy === undefined ? [] : [["told to clients", JSON.stringify(state.strategy)]];
    const figure = (value: unknown) => (typeof value === "number" ? String(Math.round(value * 1000) / 1000) : String(value));
    const rows = [...strategy, ...known.map(([name, label]) => [label, figure(state[name])])];
    replace(parts.channel, h("h2", {}, "Channel"), table("channel-table", ["", "value"], rows));
  } catch (error) {
    if (error instanceof Refused) withChannel = false;
  }
}

// --- The loop --------------------------------------------------------------------------------

function askForToken(): void {
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    setToken(String(new FormData(event.target as HTMLFormElement).get("token")));
    void loop();
  };
  replace(
    parts.top,
    h("strong", {}, "Tidegate"),
    h(
      "form",
      { submit: submit as never },
      h("label", { for: "token" }, hasToken() ? "That token is not valid. " : "This proxy asks for its token (admin.token). "),
      h("input", { id: "token", name: "token", type: "password" }),
      h("button", {}, "Look"),
    ),
  );
}

async function look(): Promise<void> {
  const status = await get<Status>("/api/status");
  if (!(chosen in status.applications)) chosen = Object.keys(status.applications)[0] ?? "";
  const application = status.applications[chosen];
  if (application === undefined) return;
  document.title = `${application.overload.on ? "overloaded · " : ""}Tidegate`;
  top(status);
  applications(parts.applications, status, chosen, choose);
  now(parts.now, application);
  help(parts.help, status, application);
  classes(parts.classes, application);
  replicas(parts.replicas, chosen, application);
  shadow(parts.shadow, application);
  steering(parts.steering, chosen, status, application);
  const last = events[events.length - 1]?.id ?? 0;
  const more = await get<Event[]>(`/api/events?follow=false&after=${last}&types=${TYPES}`);
  events = [...events, ...more].slice(-EVENTS_KEPT);
  why(parts.why, events, chosen, application);
  if (round++ % HISTORY_EVERY === 0) await Promise.all([draw(), channel()]);
}

async function loop(): Promise<void> {
  try {
    await look();
    document.body.classList.remove("stale");
  } catch (error) {
    if (error instanceof Refused && error.status === 401) return askForToken();
    document.body.classList.add("stale");
    const gone = "The proxy does not answer; what is shown is the last that is known.";
    replace(parts.top, h("strong", {}, "Tidegate"), h("span", { class: "bad" }, error instanceof Refused ? error.message : gone));
  }
  setTimeout(() => void loop(), EVERY_MS);
}

history();
void loop();
