// Now: the state in words and figures, what would help, classes and replicas.

import type { Application, Rates, Replica, Status } from "./api";
import { code, clock, h, ms, rate, replace, table } from "./dom";
import { steer } from "./steer";

function tile(id: string, name: string, value: string, note = "", state = ""): HTMLElement {
  return h("div", { class: `tile ${state}`, id }, h("span", { class: "muted" }, name), h("b", {}, value), h("small", {}, note));
}

/** The strictest target of the classes, which the tile of response times is compared with. */
function target(application: Application): number | null {
  const all = Object.values(application.classes).map((it) => it.target_seconds);
  const known = all.filter((it): it is number => it !== null);
  return known.length === 0 ? null : Math.min(...known);
}

function share(part: number, whole: number): string {
  return whole > 0 ? `${Math.round((100 * part) / whole)} %` : "–";
}

export function now(part: HTMLElement, application: Application): void {
  const { recent, overload } = application;
  const lost = recent.revenue_lost_per_second;
  const aim = target(application);
  const late = aim !== null && (recent.response_p99_seconds ?? 0) > aim;
  const capacity = application.capacity_per_second;
  const dry = application.dry_run.on;
  const shed = dry ? recent.would_shed_per_second : recent.shed_per_second;
  const episode = overload.episode;
  replace(
    part,
    h("p", { id: "headline", class: overload.on ? "bad" : "good" }, application.headline),
    episode !== null && episode.ended === null &&
      h("p", { id: "episode", class: "muted" }, `In this overload: ${episode.arrived} arrived, ${episode.in_target} answered in target, ${episode.shed} shed.`),
    h(
      "div",
      { class: "tiles" },
      tile("offered", "offered", `${rate(recent.offered_per_second)}/s`, "requests that arrive"),
      tile("capacity", "capacity", capacity === null ? "not known" : `${rate(capacity)}/s`, capacity === null ? "never all windows full yet" : "measured"),
      tile("goodput", "goodput", `${rate(recent.in_target_per_second)}/s`, capacity === null ? "answered in target" : `in target, ${share(recent.in_target_per_second, capacity)} of capacity`),
      tile("shed", dry ? "would be shed" : "shed", `${rate(shed)}/s`, `${share(shed, recent.offered_per_second)} of what arrives`, shed > 0 ? "bad" : ""),
      tile("p99", "p99", ms(recent.response_p99_seconds), `p50 ${ms(recent.response_p50_seconds)}, p95 ${ms(recent.response_p95_seconds)}; target ${ms(aim)}`, late ? "bad" : ""),
      tile("queue", "waiting", String(application.queue.requests), "requests in the queue"),
      lost + recent.revenue_earned_per_second > 0 &&
        tile("revenue", "revenue", `${rate(recent.revenue_earned_per_second)}/s`, `${rate(lost)}/s lost`),
    ),
  );
}

/** What is wrong, and what would help. */
export function help(part: HTMLElement, status: Status, application: Application): void {
  const lines = [...status.warnings, ...application.warnings].map((it) =>
    h("li", {}, h("b", {}, `since ${clock(it.since)} `), ...code(it.text)),
  );
  const advice = application.advice.map((text) => h("li", {}, ...code(text)));
  replace(
    part,
    lines.length > 0 && h("ul", { class: "box warnings" }, ...lines),
    advice.length > 0 && h("div", { class: "box" }, h("h2", {}, "What would help"), h("ul", { id: "advice" }, ...advice)),
    application.forecast && h("p", { id: "forecast" }, `Forecast from the last minute: ${application.forecast.headline}`),
  );
}

/** All applications, where there are several; a click chooses one. */
export function applications(part: HTMLElement, status: Status, chosen: string, choose: (name: string) => void): void {
  const all = Object.entries(status.applications);
  const rows = all.map(([name, { recent, overload, capacity_per_second, mode }]) => [
    h("button", { id: `choose-${name}`, type: "button", "aria-pressed": String(name === chosen), click: (() => choose(name)) as never }, name),
    overload.on ? `overloaded since ${clock(overload.since)}` : "not overloaded",
    rate(recent.offered_per_second),
    rate(capacity_per_second),
    rate(recent.in_target_per_second),
    rate(recent.shed_per_second),
    ms(recent.response_p99_seconds),
    mode.name,
  ]);
  const heads = ["application", "state", "offered/s", "capacity/s", "in target/s", "shed/s", "p99", "mode"];
  const marks = all.map(([, it]) => (it.overload.on ? "bad" : ""));
  replace(part, all.length > 1 && h("h2", {}, "Applications"), all.length > 1 && table("application-table", heads, rows, marks));
}

function reasons(recent: Rates): string {
  return Object.entries(recent.shed_per_second_by_reason)
    .sort(([, a], [, b]) => b - a)
    .map(([reason, value]) => `${reason} ${rate(value)}/s`)
    .join(", ");
}

export function classes(part: HTMLElement, application: Application): void {
  const all = Object.entries(application.classes).sort(([, a], [, b]) => a.rank - b.rank);
  const some = (of: (recent: Rates) => number) => all.some(([, it]) => of(it.recent) > 0);
  const columns: [string, boolean, (name: string, it: (typeof all)[0][1]) => string][] = [
    ["class", true, (name) => name],
    ["offered/s", true, (_, it) => rate(it.recent.offered_per_second)],
    ["admitted/s", true, (_, it) => rate(it.recent.admitted_per_second)],
    ["in target/s", true, (_, it) => rate(it.recent.in_target_per_second)],
    ["shed/s", true, (_, it) => rate(it.recent.shed_per_second)],
    ["shed by", true, (_, it) => reasons(it.recent)],
    ["would shed/s", application.dry_run.on, (_, it) => rate(it.recent.would_shed_per_second)],
    ["browned out/s", some((it) => it.browned_out_per_second), (_, it) => rate(it.recent.browned_out_per_second)],
    ["failed/s", some((it) => it.failed_per_second), (_, it) => rate(it.recent.failed_per_second)],
    ["abandoned/s", some((it) => it.abandoned_per_second), (_, it) => rate(it.recent.abandoned_per_second)],
    ["p50", true, (_, it) => ms(it.recent.response_p50_seconds)],
    ["p95", true, (_, it) => ms(it.recent.response_p95_seconds)],
    ["p99", true, (_, it) => ms(it.recent.response_p99_seconds)],
    ["target", true, (_, it) => ms(it.target_seconds)],
    ["earned/s", some((it) => it.revenue_earned_per_second), (_, it) => rate(it.recent.revenue_earned_per_second)],
    ["lost/s", some((it) => it.revenue_lost_per_second), (_, it) => rate(it.recent.revenue_lost_per_second)],
  ];
  const shown = columns.filter(([, show]) => show);
  const rows = all.map(([name, it]) => shown.map(([, , text]) => text(name, it)));
  const marks = all.map(([, it]) => (it.recent.shed_per_second > 0.05 ? "bad" : ""));
  replace(part, h("h2", {}, "Classes, the most important first"), table("class-table", shown.map(([head]) => head), rows, marks));
}

const PHASES: Record<string, string> = {
  idle: "none waited yet",
  slow_start: "growing",
  searching: "searching",
  settled: "settled",
};

/** Where the search for a window is, with the knee once it is found. */
function search(it: Replica): string {
  const phase = it.phase === null ? "" : (PHASES[it.phase] ?? it.phase);
  return it.knee === null ? phase : `${phase}, knee ${rate(it.knee)}`;
}

export function replicas(part: HTMLElement, name: string, application: Application, readOnly: boolean): void {
  const all = application.replicas;
  const path = `/api/applications/${encodeURIComponent(name)}/replicas`;
  const change = (question: string, body: unknown) => (() => void steer(question, path, body, "PATCH")) as never;
  const buttons = (it: Replica) => {
    const to = it.state === "draining" ? "undrain" : "drain";
    const weigh = () => {
      const weight = Number(window.prompt(`Weight of ${it.url}, relative to the others (now ${it.weight})`, String(it.weight)));
      if (Number.isInteger(weight) && weight > 0) void steer(`Weight ${weight} for ${it.url}?`, path, { weight: { [it.url]: weight } }, "PATCH");
    };
    return h(
      "span",
      { class: "pair" },
      h("button", { id: `drain-${it.id}`, type: "button", click: change(`${to} ${it.url}?`, { [to]: [it.url] }) }, to),
      h("button", { id: `weight-${it.id}`, type: "button", click: (() => weigh()) as never }, "weight"),
    );
  };
  const rows = all.map((it) => [
    it.url,
    `${it.state}${it.slow ? ", slow" : ""}`,
    clock(it.since),
    it.trouble === null ? "well" : it.trouble.replace(`replica ${it.url}: `, ""),
    it.window === null ? "no limit" : String(it.window),
    search(it),
    String(it.in_flight),
    rate(it.recent.served_per_second),
    ms(it.recent.service_p50_seconds),
    ms(it.recent.service_p99_seconds),
    String(it.weight),
    ...(readOnly ? [] : [buttons(it)]),
  ]);
  const heads = ["replica", "state", "since", "checks", "window", "search", "in flight", "served/s", "service p50", "service p99", "weight"];
  if (!readOnly) heads.push("steer");
  const marks = all.map((it) => (it.state === "up" && !it.slow ? "" : "warn"));
  replace(part, h("h2", {}, "Replicas"), table("replica-table", heads, rows, marks));
}
