// Why: what changed and for which reason, and why one request was refused.

import type { Application, Event } from "./api";
import { get } from "./api";
import { clock, h, ms, rate, replace } from "./dom";

const SHOWN = 40;

/** Kinds of events that the list can be narrowed to. */
const KINDS: Record<string, string[]> = {
  changes: ["overload", "window", "step", "mode", "health", "ejected", "standing", "handover", "target", "policing", "switch", "notice"],
  limits: ["window", "step", "target", "policing", "handover"],
  overloads: ["overload"],
  replicas: ["health", "ejected", "standing"],
  operator: ["switch", "mode", "notice"],
  refusals: ["shed"],
};

const list = h("div");
const answer = h("p", { id: "answer", role: "status" });
const kinds = h("div", { class: "buttons" });
let kind = "changes";

function url(application: Application, id: unknown): string {
  return application.replicas.find((it) => it.id === id)?.url ?? `replica ${id}`;
}

/** What an event says, in words. */
export function words(event: Event, application: Application): string {
  const number = (name: string) => rate(event[name] as number);
  switch (event.type) {
    case "overload":
      return event.on
        ? `overload began: ${number("offered_per_second")}/s arrive, ${number("drain_per_second")}/s can be served`
        : "overload ended";
    case "window":
      return `window of ${url(application, event.replica)}: ${event.from} → ${event.to} (${event.cause})`;
    case "step":
      return `${event.controller}: measured ${number("measured")} for setpoint ${number("setpoint")}, command ${number("output")}`;
    case "mode":
      return `mode ${event.from} → ${event.to}`;
    case "health":
      return `${url(application, event.replica)} ${event.up ? "gets requests again" : "gets no requests"}`;
    case "ejected":
      return `${url(application, event.replica)} ${event.on ? "is ejected" : "is back"}: ${ms(event.seconds as number)}, the others ${ms(event.others_seconds as number)}`;
    case "target":
      return `target of class ${event.class}: ${ms(event.seconds as number)} at ${number("offered_per_second")}/s`;
    case "switch":
      return `${String(event.name).replace("_", " ")} ${event.on ? "on" : "off"}`;
    case "shed":
      return `${event.class}, ${event.reason}: ${event.words}`;
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

/** Whether an event is about this application, or about the process. */
function concerns(event: Event, name: string): boolean {
  return event.application === undefined || event.application === name;
}

/** The lines of the log repeat what other events say. */
function repeated(event: Event): boolean {
  return event.type === "notice" && /^(overload|application \S+: overload)/.test(String(event.line));
}

async function lookUp(event: SubmitEvent): Promise<void> {
  event.preventDefault();
  const id = String(new FormData(event.target as HTMLFormElement).get("request")).trim();
  try {
    const found = await get<{ words: string }>(`/api/requests?id=${encodeURIComponent(id)}`);
    answer.textContent = found.words;
    answer.className = "";
  } catch (error) {
    answer.textContent = (error as Error).message;
    answer.className = "muted";
  }
}

export function why(part: HTMLElement, events: Event[], name: string, application: Application): void {
  const wanted = KINDS[kind]!;
  const mine = events.filter((it) => concerns(it, name) && wanted.includes(it.type) && !repeated(it));
  const lines = mine
    .slice(-SHOWN)
    .reverse()
    .map((it) => h("li", { class: it.type }, h("time", {}, clock(it.time)), h("b", {}, it.type), h("span", {}, words(it, application))));
  replace(list, lines.length > 0 ? h("ul", { class: "events", id: "events" }, ...lines) : h("p", { class: "muted" }, "Nothing of this kind yet."));
  const choose = (to: string) => () => {
    kind = to;
    why(part, events, name, application);
  };
  replace(
    kinds,
    ...Object.keys(KINDS).map((it) =>
      h("button", { id: `kind-${it}`, type: "button", "aria-pressed": String(it === kind), click: choose(it) as never }, it),
    ),
  );
  if (part.childElementCount > 0) return;
  const find = h(
    "form",
    { submit: ((event: SubmitEvent) => void lookUp(event)) as never },
    h("input", { name: "request", placeholder: "id of a refused request (x-request-id)", size: "34", "aria-label": "request id" }),
    h("button", {}, "Why was it refused?"),
  );
  part.append(h("h2", {}, "Why"), find, answer, kinds, list);
}
