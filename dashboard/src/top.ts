// Paths and tenants: the few that cost most and are shed most, and the lines that would help.

import type { Application, Heavy } from "./api";
import { code, h, ms, rate, replace, table } from "./dom";

function rows(all: Heavy[]): string[][] {
  return all.map((it) => [
    it.name,
    rate(it.offered_per_second),
    rate(it.served_per_second),
    rate(it.shed_per_second),
    `${(100 * it.cost_share).toFixed(0)} %`,
    ms(it.service_seconds),
  ]);
}

function heavy(id: string, what: string, all: Heavy[]): HTMLElement | false {
  const heads = [what, "offered/s", "served/s", "shed/s", "of all work", "service time"];
  const marks = all.map((it) => (it.shed_per_second > 0.05 ? "bad" : ""));
  return all.length > 0 && table(id, heads, rows(all), marks);
}

/** What the configuration would gain by a class of its own for the cheap paths. */
function suggestion(of: { words: string; config: string }): HTMLElement {
  const copy = () => void navigator.clipboard?.writeText(of.config);
  return h(
    "div",
    { class: "box", id: "suggestion" },
    h("p", {}, ...code(of.words)),
    h("pre", {}, of.config),
    h("button", { id: "copy-suggestion", type: "button", click: copy as never }, "Copy"),
  );
}

export function top(part: HTMLElement, { top: it }: Application): void {
  if (it.paths.length + it.tenants.length === 0) return replace(part);
  replace(
    part,
    h("h2", {}, "Paths and tenants: what costs most and is shed most"),
    it.suggestion !== null && suggestion(it.suggestion),
    heavy("path-table", "path", it.paths),
    heavy("tenant-table", "tenant", it.tenants),
  );
}
