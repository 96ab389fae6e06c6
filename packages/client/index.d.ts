export interface ClientOptions {
  /** Where the channel listens, such as `https://auction.example:8090`. */
  channel: string;
  /** The server's public key, in hexadecimal digits (`tidegate channel keygen`). */
  key: string;
  /** Name of the store that keeps items over a reload of the page. */
  store?: string;
  /** Time between two items while no message arrives. */
  fallbackMs?: number;
  /** After this long without a message the server counts as unreachable. */
  silenceMs?: number;
  /** Longest time that an item may be held back. */
  delayMaxMs?: number;
  graceMs?: number;
}

export type Outcome = { response: Response } | { replaced: true } | { expired: true };

/** Listens, holds back, sends. Emits "state" whenever something changed. */
export class Client extends EventTarget {
  /** Needs Ed25519 of the browser, and https or localhost. */
  static open(options: ClientOptions): Promise<Client>;
  /** The server's time in milliseconds, as far as it is known. */
  now(): number;
  /** Whether nothing was heard of the server for `silenceMs`. */
  readonly partitioned: boolean;
  /** Items that wait. */
  readonly pending: number;
  /** Milliseconds until the next item may go. */
  readonly waitMs: number;
  /** Accepts a request; a later one with the same key replaces it. */
  submit(url: string, options?: RequestInit, key?: string, delayMaxMs?: number): Promise<Outcome>;
  close(): void;
}
