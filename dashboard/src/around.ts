// What stands around the proxy: the control plane and the channel to clients.

import type { Channel, Plane } from "./api";
import { clock, h, rate, replace, table } from "./dom";

/** What the control plane wants for an application; of one alone, whatever its name there. */
export function plane(part: HTMLElement, it: Plane | null, name: string, alone: boolean): void {
  if (it === null) return replace(part);
  const all = Object.values(it.applications);
  const mine = it.applications[name] ?? (alone && all.length === 1 ? all[0] : undefined);
  const band = mine?.forecast;
  const rows: string[][] =
    mine === undefined
      ? []
      : [
          ["replicas wanted", mine.wanted === null ? "no plan yet" : String(mine.wanted)],
          ["replicas set, ready, starting", `${mine.servers}, ${mine.ready}, ${mine.starting}`],
          ["forecast", band ? `${rate(band.rate_per_second)}/s, from ${rate(band.low_per_second)} to ${rate(band.high_per_second)}` : "none yet"],
          ["capacity of one", mine.capacity_per_second === null ? "not known" : `${rate(mine.capacity_per_second)}/s`],
        ];
  replace(
    part,
    h("h2", {}, "Plane"),
    it.trouble !== null && h("p", { class: "bad", id: "plane-trouble" }, `${it.trouble} (asked at ${clock(it.asked)})`),
    it.kill_switch && h("p", { class: "bad" }, "The plane's kill switch is on: it changes nothing."),
    mine === undefined
      ? h("p", { class: "muted" }, `The control plane at ${it.url} says nothing of ${name}.`)
      : h("p", { id: "plane-reason" }, mine.reason),
    rows.length > 0 && table("plane-table", ["", "value"], rows),
  );
}

export function channel(part: HTMLElement, it: Channel): void {
  const rows = [
    ["mean delay", it.delay_s === null ? "not known" : `${rate(it.delay_s)} s`],
    ["wanted delay", `${rate(it.setpoint_s)} s`],
    ["clients seen lately", rate(it.clients)],
    ["listeners", String(it.listeners)],
    ["relays", String(it.relays)],
  ];
  const offenders = it.offenders.map((one) => [one.client, String(one.strikes), one.banned_ms > 0 ? `${rate(one.banned_ms / 1e3)} s` : "no"]);
  replace(
    part,
    h("h2", {}, "Channel"),
    h("p", { id: "channel-strategy" }, `In force: ${it.strategy_words}.`),
    table("channel-table", ["", "value"], rows),
    h("h3", {}, "Offenders: clients that did not hold back"),
    offenders.length > 0 ? table("offender-table", ["client", "strikes", "refused for"], offenders) : h("p", { class: "muted" }, "None."),
  );
}
