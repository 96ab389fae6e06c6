// The page: asks the proxy once a second and says what it does, words first.

import "uplot/dist/uPlot.min.css";
import "./style.css";
import type { Channel, Event, History, Status } from "./api";
import { Refused, forgetToken, get, hasToken, setToken } from "./api";
import { channel, plane } from "./around";
import { Charts, joined, known } from "./charts";
import { clock, h, replace } from "./dom";
import { applications, classes, help, now, replicas } from "./now";
import { shadow } from "./shadow";
import { steering } from "./steer";
import { top } from "./top";
import { why } from "./why";

const EVERY_MS = 1000;
const HISTORY_EVERY = 5;
const KEPT_PER_TYPE = 200;
const TYPES =
  "overload,window,phase,step,mode,health,ejected,standing,handover,target,policing,switch,peer_joined,peer_lost,shed,notice";

const PARTS = [
  "head", "applications", "now", "help", "classes", "replicas", "top", "shadow", "history", "why", "steering", "plane", "channel",
] as const;
const parts = Object.fromEntries(PARTS.map((id) => [id, h("section", { id })])) as Record<(typeof PARTS)[number], HTMLElement>;
document.getElementById("page")!.append(...Object.values(parts));

const plots = h("div", { class: "plots" });
const charts = new Charts(plots);
let chosen = decodeURIComponent(location.hash.slice(1));
let events: Event[] = [];
let started = "";
let past: History | undefined;
let round = 0;

/** What is known is of another process, or of another application. */
function forget(): void {
  past = undefined;
  round = 0;
}

/** The last events of each type: one that happens often does not push out one that is rare. */
function kept(all: Event[]): Event[] {
  const count = new Map<string, number>();
  const recent = all.reverse().filter(({ type }) => {
    count.set(type, (count.get(type) ?? 0) + 1);
    return count.get(type)! <= KEPT_PER_TYPE;
  });
  return recent.reverse();
}

function head(status: Status): void {
  const commit = status.commit === null ? "" : ` (${status.commit.slice(0, 9)})`;
  const text = `${status.version}${commit} · up since ${clock(status.started)} · ${status.connections} connections · times in UTC`;
  replace(parts.head, h("strong", {}, "Tidegate"), h("span", { class: "muted" }, text));
}

function choose(name: string): void {
  chosen = name;
  location.hash = encodeURIComponent(name);
  forget();
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
  const note = h("small", {}, "Marks: an overload begins (red) or ends (green), changes by an operator or by the file (grey).");
  parts.history.replaceChildren(h("h2", {}, "History"), h("div", { class: "buttons" }, ...buttons), plots, note);
}

async function draw(): Promise<void> {
  const query = `application=${encodeURIComponent(chosen)}&since=${known(past)}`;
  past = joined(past, await get<History>(`/api/history?${query}`));
  charts.show(past);
}

let withChannel = true;

async function lookAtChannel(): Promise<void> {
  if (!withChannel) return;
  try {
    channel(parts.channel, await get<Channel>("/api/channel"));
  } catch (error) {
    if (error instanceof Refused) withChannel = false;
  }
}

// --- The loop --------------------------------------------------------------------------------

let asking = false;
let timer = 0;

function askForToken(): void {
  asking = true;
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    setToken(String(new FormData(event.target as HTMLFormElement).get("token")));
    asking = false;
    void loop();
  };
  // Without the token that is not valid the page may still be looked at.
  const look = () => {
    forgetToken();
    asking = false;
    void loop();
  };
  replace(
    parts.head,
    h("strong", {}, "Tidegate"),
    h(
      "form",
      { submit: submit as never },
      h("label", { for: "token" }, hasToken() ? "That token is not valid. " : "The token of this proxy (admin.token): "),
      h("input", { id: "token", name: "token", type: "password" }),
      h("button", {}, "Use it"),
      h("button", { id: "look-only", type: "button", click: look as never }, "Go on without"),
    ),
  );
}

async function look(): Promise<void> {
  const status = await get<Status>("/api/status");
  if (asking) return;
  if (!(chosen in status.applications)) chosen = Object.keys(status.applications)[0] ?? "";
  const application = status.applications[chosen];
  if (application === undefined) return;
  document.title = `${application.overload.on ? "overloaded · " : ""}Tidegate`;
  if (status.started !== started) {
    // Another process numbers its events from 1 on.
    started = status.started;
    events = [];
    forget();
  }
  head(status);
  applications(parts.applications, status, chosen, choose);
  now(parts.now, application);
  help(parts.help, status, application);
  classes(parts.classes, application);
  replicas(parts.replicas, chosen, application, status.read_only);
  top(parts.top, application);
  shadow(parts.shadow, application);
  steering(parts.steering, chosen, status, application, askForToken);
  plane(parts.plane, status.plane, chosen, Object.keys(status.applications).length === 1);
  const last = events.reduce((most, { id }) => Math.max(most, id), 0);
  const more = await get<Event[]>(`/api/events?follow=false&after=${last}&types=${TYPES}`);
  events = kept([...events, ...more]);
  why(parts.why, events, chosen);
  if (round++ % HISTORY_EVERY === 0) await Promise.all([draw(), lookAtChannel()]);
}

async function loop(): Promise<void> {
  clearTimeout(timer);
  if (asking) return;
  try {
    await look();
    document.body.classList.remove("stale");
  } catch (error) {
    if (error instanceof Refused && error.status === 401) return askForToken();
    document.body.classList.add("stale");
    const gone = "The proxy does not answer; what is shown is the last that is known.";
    replace(parts.head, h("strong", {}, "Tidegate"), h("span", { class: "bad" }, error instanceof Refused ? error.message : gone));
  }
  timer = window.setTimeout(() => void loop(), EVERY_MS);
}

history();
void loop();
