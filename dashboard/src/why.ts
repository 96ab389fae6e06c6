// Why: what changed and for which reason, and what became of one request.

import type { Event } from "./api";
import { get } from "./api";
import { clock, h, replace } from "./dom";

const SHOWN = 40;

/** Kinds of events that the list can be narrowed to. */
const KINDS: Record<string, string[]> = {
  changes: [
    "overload", "window", "phase", "step", "mode", "health", "ejected", "standing", "handover", "target", "policing", "switch",
    "peer_joined", "peer_lost", "notice",
  ],
  limits: ["window", "phase", "step", "target", "policing", "handover"],
  overloads: ["overload"],
  replicas: ["health", "ejected", "standing", "phase"],
  fleet: ["peer_joined", "peer_lost"],
  operator: ["switch", "mode", "notice"],
  refusals: ["shed"],
};

const list = h("div");
const answer = h("p", { id: "answer", role: "status" });
const kinds = h("div", { class: "buttons" });
let kind = "changes";

/** What an event says: the proxy has it in words. */
export function words(event: Event): string {
  if (event.type === "shed") return `${event.class}, ${event.reason}: ${event.words}`;
  if (event.type === "notice") return String(event.line);
  return String(event.words ?? JSON.stringify(event));
}

/** Whether an event is about this application, or about the process. */
function concerns(event: Event, name: string): boolean {
  return event.application === undefined || event.application === name;
}

/** The lines of the log repeat what other events say. */
function repeated(event: Event): boolean {
  return event.type === "notice" && /^(application \S+: )?(overload|an? (ejected )?replica is |proxy \S+ is )/.test(String(event.line));
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

export function why(part: HTMLElement, events: Event[], name: string): void {
  const wanted = KINDS[kind]!;
  const mine = events.filter((it) => concerns(it, name) && wanted.includes(it.type) && !repeated(it));
  const lines = mine
    .slice(-SHOWN)
    .reverse()
    .map((it) => h("li", { class: it.type }, h("time", {}, clock(it.time)), h("b", {}, it.type.replace("_", " ")), h("span", {}, words(it))));
  replace(list, lines.length > 0 ? h("ul", { class: "events", id: "events" }, ...lines) : h("p", { class: "muted" }, "Nothing of this kind yet."));
  const choose = (to: string) => () => {
    kind = to;
    why(part, events, name);
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
    h("input", { name: "request", placeholder: "id of a request (x-request-id)", size: "34", "aria-label": "request id" }),
    h("button", {}, "What became of it?"),
  );
  part.append(h("h2", {}, "Why"), find, answer, kinds, list);
}
