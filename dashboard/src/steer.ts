// Steering: each change is confirmed, takes effect at once and is written to the log.

import type { Application, Status } from "./api";
import { send } from "./api";
import { clock, h, replace } from "./dom";

const MODES = ["auto", "static", "step", "pi", "pid", "lqr", "ilac", "sentry", "off"];

const said = h("p", { id: "steered", class: "muted", role: "status" });

export async function steer(question: string, path: string, body: unknown, method: "POST" | "PATCH" = "POST"): Promise<void> {
  if (!window.confirm(`${question}\n\nIt takes effect at once and is written to the log.`)) return;
  try {
    await send(method, path, body);
    said.textContent = `Done: ${question.replace(/\?$/, "")}.`;
  } catch (error) {
    said.textContent = `Not done: ${(error as Error).message}`;
  }
}

function toggle(name: string, path: string, state: { on: boolean; since: string }, means: string): HTMLElement {
  const to = !state.on;
  const act = () => steer(`${name} ${to ? "on" : "off"}?`, path, { enabled: to });
  const id = `toggle-${name.toLowerCase().replace(" ", "-")}`;
  return h(
    "div",
    { class: state.on ? "switch on" : "switch" },
    h("button", { id, type: "button", click: (() => void act()) as never }, `${name}: ${state.on ? "on" : "off"}`),
    h("small", {}, `${means}${state.on ? ` · on since ${clock(state.since)}` : ""}`),
  );
}

function mode(path: string, now: string): HTMLElement {
  const change = (event: InputEvent) => {
    const select = event.target as HTMLSelectElement;
    const to = select.value;
    select.value = now;
    void steer(`Mode ${to}?`, `${path}/mode`, { mode: to });
  };
  const options = MODES.map((name) => h("option", { value: name, selected: name === now }, name));
  return h("select", { id: "mode", "aria-label": "mode", change: change as never }, ...options);
}

function target(path: string): HTMLElement {
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const to = String(new FormData(event.target as HTMLFormElement).get("target")).trim();
    void steer(`Target ${to || "found by measurement"}?`, `${path}/parameters`, { target: to || null });
  };
  return h(
    "form",
    { submit: submit as never },
    h("input", { id: "target", name: "target", placeholder: "300ms", size: "8", "aria-label": "target" }),
    h("button", { id: "set-target" }, "Set target"),
  );
}

const controls = h("div");

/** Whoever has no token looks on; a form takes one. */
function readOnly(enter: () => void): HTMLElement {
  return h(
    "p",
    { id: "read-only" },
    "Read-only: this page has no token. ",
    h("button", { id: "enter-token", type: "button", click: (() => enter()) as never }, "Enter the token"),
    " to steer.",
  );
}

export function steering(part: HTMLElement, name: string, status: Status, application: Application, enter: () => void): void {
  if (part.childElementCount === 0) part.append(h("h2", {}, "Steering"), controls, said);
  if (status.read_only) return replace(controls, readOnly(enter));
  const path = `/api/applications/${encodeURIComponent(name)}`;
  replace(
    controls,
    h(
      "div",
      { class: "steering" },
      toggle("Kill switch", `${path}/kill-switch`, application.kill_switch, "admits everything"),
      toggle("Dry run", `${path}/dry-run`, application.dry_run, "decides and counts, sheds nothing"),
      toggle("Drain", `${path}/drain`, application.draining, "refuses everything new"),
      h("div", { class: "switch" }, mode(path, application.mode.name), h("small", {}, `mode since ${clock(application.mode.since)}`)),
      h("div", { class: "switch" }, target(path), h("small", {}, "empty: found by measurement")),
      status.reload.file !== null &&
        h(
          "div",
          { class: "switch" },
          h("button", { id: "reload", type: "button", click: (() => void steer("Reload the file?", "/api/reload", {})) as never }, "Reload the file"),
          h("small", {}, status.reload.changed_live ? "drops what was changed live" : "as it is on disk"),
        ),
    ),
  );
}
