// A browser's side of the channel (paper 001): listens to signed control messages, holds items
// back, keeps them in IndexedDB or memory. A plain ES module without a build step.
//
//   import { Client } from "./tidegate-client.js";
//   const client = await Client.open({ channel: "http://host:8090", key: "HEX", store: "bids" });
//   const outcome = await client.submit("/bids", { method: "POST", body: "amount=120" }, "lot 7");
//
// Message, phases and pacing are those of the Rust crates tidegate-channel and tidegate-client;
// their test vectors are tests here too.

const DOMAIN = new TextEncoder().encode("tidegate-channel-v1");
const SIGNATURE_BYTES = 64;

/** Bytes of hexadecimal digits. */
export function fromHex(text) {
  const pairs = text.trim().match(/^([0-9a-f]{2})+$/i) ? text.trim().match(/../g) : [];
  return Uint8Array.from(pairs, (pair) => parseInt(pair, 16));
}

/** Bytes of base64url without padding; null when it is none. */
export function fromText(text) {
  try {
    const plain = atob(text.trim().replaceAll("-", "+").replaceAll("_", "/"));
    return Uint8Array.from(plain, (char) => char.charCodeAt(0));
  } catch {
    return null;
  }
}

/** Takes a message apart; null when its form is not that of version 1. */
export function readMessage(bytes) {
  if (!bytes || bytes.length < 30 + SIGNATURE_BYTES || bytes[0] !== 1) return null;
  const body = bytes.subarray(0, bytes.length - SIGNATURE_BYTES);
  const view = new DataView(body.buffer, body.byteOffset, body.length);
  const kind = view.getUint8(29);
  let at = 30;
  let strategy;
  try {
    switch (kind & 0x7f) {
      case 0:
        strategy = { kind: "open" };
        break;
      case 1: {
        const slotMs = view.getUint32(at);
        const count = view.getUint8(at + 4);
        at += 5;
        const classes = [];
        for (let i = 0; i < count; i += 1, at += 4) {
          classes.push({ divisor: view.getUint16(at), modulo: view.getUint16(at + 2) });
        }
        if (slotMs === 0 || count > 8 || classes.some((c) => c.modulo >= c.divisor)) return null;
        strategy = { kind: "group", slotMs, classes };
        break;
      }
      case 2:
        strategy = { kind: "interval", intervalMs: view.getUint32(at) };
        at += 4;
        break;
      default:
        return null;
    }
    if (kind & 0x80) at += 32;
  } catch {
    return null; // cut short
  }
  if (at !== body.length) return null;
  return {
    seq: view.getBigUint64(5),
    issuedMs: Number(view.getBigUint64(13)),
    validityMs: view.getUint32(21),
    setpointMs: view.getUint32(25),
    strategy,
    body,
    signature: bytes.subarray(bytes.length - SIGNATURE_BYTES),
  };
}

/** Believes messages of one key, each newer than the last. */
export class Verifier {
  static async create(keyHex) {
    const key = await crypto.subtle.importKey("raw", fromHex(keyHex), "Ed25519", false, ["verify"]);
    return new Verifier(key);
  }

  constructor(key) {
    this.key = key;
    this.lastSeq = -1n;
    this.accepted = 0;
    this.dropped = 0;
  }

  /** The message, or null when it must not be applied. */
  async accept(text, nowMs) {
    const message = readMessage(fromText(text));
    const fresh =
      message &&
      message.seq > this.lastSeq &&
      message.issuedMs + message.validityMs > nowMs &&
      message.issuedMs <= nowMs + 5000;
    const signed = fresh && new Uint8Array([...DOMAIN, ...message.body]);
    const genuine =
      fresh && (await crypto.subtle.verify("Ed25519", this.key, message.signature, signed));
    if (!genuine || message.seq <= this.lastSeq) {
      this.dropped += 1;
      return null;
    }
    this.lastSeq = message.seq;
    this.accepted += 1;
    return message;
  }
}

const MASK = (1n << 64n) - 1n;

/** A client's place within a slot or an interval, in [0, 1): the finalizer of SplitMix64. */
export function phase(id) {
  let z = (BigInt(id) + 0x9e3779b97f4a7c15n) & MASK;
  z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK;
  z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & MASK;
  return Number((z ^ (z >> 31n)) >> 11n) / 2 ** 53;
}

/** One client's permission to send. Times are milliseconds of the server's clock. */
export class Pacer {
  constructor(id) {
    this.id = BigInt(id);
    this.strategy = { kind: "open" };
    this.progress = phase(id);
    this.seen = 0;
    this.sent = false;
  }

  apply(nowMs, strategy) {
    this.#advance(nowMs);
    this.strategy = strategy;
  }

  /** When an item may go: now or earlier means now. */
  notBefore(nowMs) {
    this.#advance(nowMs);
    switch (this.strategy.kind) {
      case "interval":
        return this.sent
          ? this.seen + (1 - this.progress) * Math.max(this.strategy.intervalMs, 0.001)
          : nowMs;
      case "group":
        return this.#nextTurn(nowMs);
      default:
        return nowMs;
    }
  }

  /** An item went out, or failed to. */
  onSent(nowMs) {
    this.#advance(nowMs);
    this.sent = true;
  }

  #advance(nowMs) {
    if (this.strategy.kind === "interval" && nowMs > this.seen) {
      this.progress += (nowMs - this.seen) / Math.max(this.strategy.intervalMs, 0.001);
      if (this.progress >= 1) {
        this.progress %= 1;
        this.sent = false;
      }
    }
    this.seen = Math.max(this.seen, nowMs);
  }

  #nextTurn(nowMs) {
    const { slotMs, classes } = this.strategy;
    const offset = phase(this.id) * slotMs;
    const slot = Math.floor((nowMs + slotMs - offset) / slotMs);
    const waits = classes.map(({ divisor, modulo }) => {
      const active = (modulo + slot) % divisor;
      return (Number(this.id % BigInt(divisor)) + divisor - active) % divisor;
    });
    const wait = Math.min(...waits);
    if (wait === 0) return nowMs;
    return Number.isFinite(wait) ? (slot + wait - 1) * slotMs + offset : Infinity;
  }
}

/** Keeps items over a reload of the page, where the browser allows it. */
class Store {
  static async open(name) {
    const store = new Store();
    store.items = new Map();
    store.database = await new Promise((resolve) => {
      if (!globalThis.indexedDB) return resolve(null);
      const request = indexedDB.open(`tidegate-${name}`, 1);
      request.onupgradeneeded = () => request.result.createObjectStore("items");
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => resolve(null);
    });
    for (const [key, value] of await store.#all()) store.items.set(key, value);
    return store;
  }

  async put(key, value) {
    this.items.set(key, value);
    await this.#run("readwrite", (items) => items.put(value, key));
  }

  async delete(key) {
    this.items.delete(key);
    await this.#run("readwrite", (items) => items.delete(key));
  }

  async #all() {
    const keys = (await this.#run("readonly", (items) => items.getAllKeys())) ?? [];
    const values = (await this.#run("readonly", (items) => items.getAll())) ?? [];
    return keys.map((key, index) => [key, values[index]]);
  }

  #run(mode, call) {
    if (!this.database) return Promise.resolve(undefined);
    return new Promise((resolve, reject) => {
      const transaction = this.database.transaction("items", mode, { durability: "strict" });
      const request = call(transaction.objectStore("items"));
      transaction.oncomplete = () => resolve(request.result);
      transaction.onerror = () => reject(transaction.error);
    });
  }
}

/** Listens, holds back, sends. Events: "state" whenever something changed. */
export class Client extends EventTarget {
  static async open({ channel, key, store = "items", fallbackMs = 60_000, silenceMs = 10_000 }) {
    const client = new Client();
    client.channel = channel;
    client.verifier = await Verifier.create(key);
    client.store = await Store.open(store);
    client.id = client.#identity(store);
    client.pacer = new Pacer(client.id);
    client.offsetMs = 0;
    client.heard = -Infinity;
    client.retryAt = 0;
    client.busy = false;
    client.waiting = new Map();
    client.fallback = { kind: "interval", intervalMs: fallbackMs };
    client.silenceMs = silenceMs;
    client.pacer.apply(client.now(), client.fallback);
    client.#listen();
    client.timer = setInterval(() => client.#tick(), 200);
    return client;
  }

  /** The server's time, as far as its messages tell. */
  now() {
    return Date.now() + this.offsetMs;
  }

  get partitioned() {
    return this.now() - this.heard > this.silenceMs;
  }

  get pending() {
    return this.store.items.size;
  }

  /** Milliseconds until the next item may go. */
  get waitMs() {
    return Math.max(0, Math.max(this.retryAt, this.pacer.notBefore(this.now())) - this.now());
  }

  /** Accepts a request; resolves with { response } or { replaced: true }. */
  async submit(url, options, key = crypto.randomUUID()) {
    this.waiting.get(key)?.({ replaced: true });
    const outcome = new Promise((resolve) => this.waiting.set(key, resolve));
    const number = Number(localStorage.getItem("tidegate-next") ?? 1);
    localStorage.setItem("tidegate-next", String(number + 1));
    await this.store.put(key, { url, options, number, madeMs: this.now() });
    this.#changed();
    this.#tick();
    return outcome;
  }

  close() {
    clearInterval(this.timer);
    this.source.close();
  }

  #identity(store) {
    const name = `tidegate-id-${store}`;
    const fresh = () => crypto.getRandomValues(new BigUint64Array(1))[0].toString();
    const id = localStorage.getItem(name) ?? fresh();
    localStorage.setItem(name, id);
    return BigInt(id);
  }

  #listen() {
    this.source = new EventSource(`${this.channel}/.tidegate/channel`);
    this.source.onmessage = (event) => this.#onText(event.data);
  }

  async #onText(text) {
    const message = await this.verifier.accept(text, this.now());
    if (!message) return;
    this.heard = this.now();
    this.pacer.apply(this.now(), message.strategy);
    this.#changed();
    this.#tick();
  }

  async #tick() {
    if (this.partitioned && this.pacer.strategy !== this.fallback) {
      this.pacer.apply(this.now(), this.fallback);
      this.#changed();
    }
    const next = this.store.items.entries().next();
    if (this.busy || next.done || this.waitMs > 0) return;
    const [key, item] = next.value;
    this.busy = true;
    this.pacer.onSent(this.now());
    this.#changed();
    const response = await this.#send(item);
    this.busy = false;
    if (response && ![429, 502, 503, 504].includes(response.status)) {
      // A newer item of the same key may have come meanwhile.
      if (this.store.items.get(key) === item) await this.store.delete(key);
      this.waiting.get(key)?.({ response });
      this.waiting.delete(key);
    } else {
      const after = Number(response?.headers.get("retry-after") ?? 1) * 1000;
      this.retryAt = Math.max(this.now() + after, this.pacer.notBefore(this.now()));
    }
    this.#changed();
    this.#tick();
  }

  async #send(item) {
    const seq = this.verifier.lastSeq < 0n ? 0n : this.verifier.lastSeq;
    const headers = {
      ...item.options?.headers,
      "tidegate-client": `${this.id.toString(16).padStart(16, "0")};seq=${seq}`,
      "idempotency-key": `"${this.id.toString(16).padStart(16, "0")}-${item.number}"`,
    };
    try {
      const response = await fetch(item.url, { ...item.options, headers });
      const carried = response.headers.get("tidegate-control");
      if (carried) await this.#onText(carried);
      return response;
    } catch {
      return null; // no connection: it goes again
    }
  }

  #changed() {
    this.dispatchEvent(new Event("state"));
  }
}
