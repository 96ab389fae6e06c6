// The admin API as the page uses it.

export interface Rates {
  offered_per_second: number;
  admitted_per_second: number;
  served_per_second: number;
  in_target_per_second: number;
  browned_out_per_second: number;
  shed_per_second: number;
  shed_per_second_by_reason: Record<string, number>;
  would_shed_per_second: number;
  failed_per_second: number;
  abandoned_per_second: number;
  revenue_earned_per_second: number;
  revenue_lost_per_second: number;
  response_p50_seconds: number | null;
  response_p95_seconds: number | null;
  response_p99_seconds: number | null;
}

export interface Switch {
  on: boolean;
  since: string;
}

export interface Warning {
  key: string;
  since: string;
  text: string;
}

export interface Replica {
  id: number;
  url: string;
  state: string;
  slow: boolean;
  trouble: string | null;
  since: string;
  weight: number;
  window: number | null;
  phase: string | null;
  knee: number | null;
  in_flight: number;
  served: number;
  recent: {
    served_per_second: number;
    service_p50_seconds: number | null;
    service_p99_seconds: number | null;
  };
}

export interface Class {
  rank: number;
  target_seconds: number | null;
  queued: number;
  recent: Rates;
}

export interface ShadowClass {
  name: string;
  target_seconds: number | null;
  admitted_per_second: number;
  in_target_per_second: number;
  shed_per_second: number;
  shed_per_second_by_reason: Record<string, number>;
}

export interface ShadowEngine {
  mode: string;
  capacity_per_second: number | null;
  queued: number;
  windows: (number | null)[];
  response_p95_seconds: number | null;
  total: ShadowClass;
  classes: ShadowClass[];
}

export interface Shadow {
  headline: string;
  differences: string[];
  in_force: ShadowEngine;
  modelled: ShadowEngine;
  shadow: ShadowEngine;
}

/** A path or tenant. */
export interface Heavy {
  name: string;
  offered_per_second: number;
  served_per_second: number;
  shed_per_second: number;
  cost_share: number;
  service_seconds: number | null;
}

export interface Top {
  paths: Heavy[];
  tenants: Heavy[];
  suggestion: { words: string; config: string } | null;
}

export interface Plane {
  url: string;
  asked: string;
  trouble: string | null;
  mode: string | null;
  kill_switch: boolean;
  applications: Record<
    string,
    {
      servers: number;
      ready: number;
      starting: number;
      wanted: number | null;
      capacity_per_second: number | null;
      forecast: null | { rate_per_second: number; low_per_second: number; high_per_second: number };
      reason: string;
    }
  >;
}

export interface Channel {
  strategy_words: string;
  delay_s: number | null;
  setpoint_s: number;
  clients: number;
  listeners: number;
  relays: number;
  offenders: { client: string; strikes: number; banned_ms: number }[];
}

export interface Application {
  headline: string;
  mode: { name: string; since: string };
  overload: {
    on: boolean | null;
    since: string;
    episodes: number;
    episode: null | {
      began: string;
      ended: string | null;
      duration_seconds: number;
      arrived: number;
      served: number;
      in_target: number;
      shed: number;
    };
  };
  dry_run: Switch;
  kill_switch: Switch;
  draining: Switch;
  capacity_per_second: number | null;
  warnings: Warning[];
  advice: string[];
  forecast?: { since: string; headline: string };
  top: Top;
  shadow?: Shadow;
  queue: { requests: number; bytes: number };
  replicas: Replica[];
  classes: Record<string, Class>;
  recent: Rates & { seconds: number };
}

export interface Status {
  version: string;
  commit: string | null;
  time: string;
  started: string;
  connections: number;
  warnings: Warning[];
  read_only: boolean;
  plane: Plane | null;
  reload: { file: string | null; changed_live: boolean; error: string | null };
  applications: Record<string, Application>;
}

export interface Event {
  id: number;
  time: string;
  type: string;
  [field: string]: unknown;
}

export interface Mark {
  time: number;
  kind: "overload_began" | "overload_ended" | "reload" | "operator";
  words: string;
}

export interface History {
  columns: string[];
  rings: { seconds: number; points: (number | null)[][] }[];
  marks: Mark[];
}

const TOKEN = "tidegate-token";

export function setToken(token: string): void {
  sessionStorage.setItem(TOKEN, token);
}

export function forgetToken(): void {
  sessionStorage.removeItem(TOKEN);
}

export function hasToken(): boolean {
  return sessionStorage.getItem(TOKEN) !== null;
}

/** What the proxy refused, in its own words. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    readonly cause_: string,
    readonly remedy: string,
  ) {
    super(`${cause_}; ${remedy}`);
  }
}

async function call(path: string, init: RequestInit): Promise<unknown> {
  const headers = new Headers(init.headers);
  const token = sessionStorage.getItem(TOKEN);
  if (token !== null) headers.set("authorization", `Bearer ${token}`);
  const response = await fetch(path, { ...init, headers, cache: "no-store" });
  const body = await response.json().catch(() => ({}));
  if (response.ok) return body;
  throw new Refused(response.status, body.cause ?? response.statusText, body.remedy ?? "");
}

export function get<T>(path: string): Promise<T> {
  return call(path, {}) as Promise<T>;
}

export function send<T>(method: "POST" | "PATCH", path: string, body: unknown): Promise<T> {
  const headers = { "content-type": "application/json" };
  return call(path, { method, headers, body: JSON.stringify(body) }) as Promise<T>;
}
