// Another configuration beside the one in force, figure by figure.

import type { Application, Shadow, ShadowClass, ShadowEngine } from "./api";
import { h, ms, rate, replace, table } from "./dom";

type Row = [string, (engine: ShadowEngine) => string];

const ROWS: Row[] = [
  ["mode", (it) => it.mode],
  ["capacity/s", (it) => rate(it.capacity_per_second)],
  ["waiting", (it) => String(it.queued)],
  ["windows", (it) => it.windows.map((window) => window ?? "no limit").join(" ")],
  ["p95", (it) => ms(it.response_p95_seconds)],
  ["admitted/s", (it) => rate(it.total.admitted_per_second)],
  ["in target/s", (it) => rate(it.total.in_target_per_second)],
  ["shed/s", (it) => rate(it.total.shed_per_second)],
];

function engines(shadow: Shadow): ShadowEngine[] {
  return [shadow.in_force, shadow.modelled, shadow.shadow];
}

function classRows(shadow: Shadow): Row[] {
  const names = new Set(engines(shadow).flatMap((it) => it.classes.map((one) => one.name)));
  const of = (name: string, show: (it: ShadowClass) => string) => (engine: ShadowEngine) => {
    const found = engine.classes.find((it) => it.name === name);
    return found === undefined ? "–" : show(found);
  };
  return [...names].flatMap((name): Row[] => {
    const all = engines(shadow).flatMap((it) => it.classes.filter((one) => one.name === name));
    const reasons = new Set(all.flatMap((it) => Object.keys(it.shed_per_second_by_reason)));
    return [
      [`${name}: target`, of(name, (it) => ms(it.target_seconds))],
      [`${name}: shed/s`, of(name, (it) => rate(it.shed_per_second))],
      ...[...reasons].sort().map((reason): Row => [`${name}: ${reason}/s`, of(name, (it) => rate(it.shed_per_second_by_reason[reason] ?? 0))]),
    ];
  });
}

export function shadow(part: HTMLElement, application: Application): void {
  const it = application.shadow;
  if (it === undefined) return replace(part);
  const rows = [...ROWS, ...classRows(it)].map(([name, show]) => [name, ...engines(it).map(show)]);
  replace(
    part,
    h("h2", {}, "Shadow"),
    h("p", { id: "shadow-headline" }, it.headline),
    h("p", { class: "muted" }, it.differences.map((text) => `protect.${text}`).join("; ")),
    table("shadow-table", ["", "in force", "by models", "shadow"], rows),
  );
}
