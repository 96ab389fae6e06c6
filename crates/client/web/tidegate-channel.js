// What the channel says, and when a client may send (paper 001): messages, keys, stamps, clock and
// pacing as in the Rust crate tidegate-channel; its test vectors are tests here too. A plain ES
// module without a build step, used by tidegate-client.js.

const SIGNATURE_BYTES = 64;
/** How long a replaced key is still believed. */
const OVERLAP_MS = 600_000;
/** Error of a clock that nobody has compared yet, and what two clocks may drift. */
const CLOCK = { unknownMs: 10_000, drift: 100e-6 };
/** A signed answer about the clock, and a round trip that the server has not seen. */
const ANSWER_BYTES = 28 + SIGNATURE_BYTES;
const UNSEEN = 0xffffffff;

/** What is signed: a word for the kind of thing, and its bytes. */
function inDomain(domain, bytes) {
  return new Uint8Array([...new TextEncoder().encode(domain), ...bytes]);
}

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

/** base64url without padding. */
export function toText(bytes) {
  const plain = btoa(String.fromCharCode(...bytes));
  return plain.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

const toHex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

/** Takes a message apart; null when its form is not that of version 1. */
export function readMessage(bytes) {
  if (!bytes || bytes.length < 30 + SIGNATURE_BYTES || bytes[0] !== 1) return null;
  const body = bytes.subarray(0, bytes.length - SIGNATURE_BYTES);
  const view = new DataView(body.buffer, body.byteOffset, body.length);
  const kind = view.getUint8(29);
  let at = 30;
  let strategy;
  let successor = null;
  let terms = { prolongedMs: 0, deadlineMs: null };
  try {
    switch (kind & 0x3f) {
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
    if (kind & 0x80) successor = body.subarray(at, (at += 32));
    if (kind & 0x40) {
      const deadline = Number(view.getBigUint64(at + 4));
      terms = { prolongedMs: view.getUint32(at) * 1000, deadlineMs: deadline || null };
      at += 12;
    }
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
    terms,
    successor: successor && toHex(successor),
    body,
    signature: bytes.subarray(bytes.length - SIGNATURE_BYTES),
  };
}

/** Believes messages of a key and of those that it announces, each message newer than the last. */
export class Verifier {
  static async create(keyHex) {
    const verifier = new Verifier();
    await verifier.#trust(keyHex.trim().toLowerCase());
    return verifier;
  }

  constructor() {
    this.keys = new Map();
    this.lastSeq = -1n;
    this.accepted = 0;
    this.dropped = 0;
  }

  /** The message, or null when it must not be applied; the clock's error counts for it. */
  async accept(text, nowMs, errorMs = 0) {
    const message = readMessage(fromText(text));
    const fresh =
      message &&
      message.seq > this.lastSeq &&
      message.issuedMs + message.validityMs + errorMs > nowMs &&
      message.issuedMs <= nowMs + 5000 + errorMs;
    const signer = fresh && (await this.signer("tidegate-channel-v1", message, nowMs));
    if (!signer || message.seq <= this.lastSeq) {
      this.dropped += 1;
      return null;
    }
    this.lastSeq = message.seq;
    this.accepted += 1;
    this.#rotate(signer, message.issuedMs);
    if (message.successor) await this.#trust(message.successor);
    return message;
  }

  /** The key that signed this and is believed; null when there is none. */
  async signer(domain, { body, signature }, nowMs) {
    for (const [hex, { key, untilMs }] of this.keys) {
      const signed = inDomain(domain, body);
      const believed = untilMs > nowMs;
      if (believed && (await crypto.subtle.verify("Ed25519", key, signature, signed))) return hex;
    }
    return null;
  }

  async #trust(hex) {
    if (this.keys.has(hex)) return;
    const key = await crypto.subtle.importKey("raw", fromHex(hex), "Ed25519", false, ["verify"]);
    this.keys.set(hex, { key, untilMs: Infinity });
  }

  /** Those that were trusted before the signer have been replaced by it. */
  #rotate(signer, sinceMs) {
    for (const [hex, trusted] of this.keys) {
      if (hex === signer) return;
      trusted.untilMs = Math.min(trusted.untilMs, sinceMs + OVERLAP_MS);
    }
  }
}

/** The digest of what is stamped: method, path with query, and body, each with its length before it. */
export async function contentOf(method, target, body) {
  const text = new TextEncoder();
  const parts = [text.encode(method), text.encode(target), new Uint8Array(body)];
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + 8 + part.length, 0));
  const view = new DataView(bytes.buffer);
  let at = 0;
  for (const part of parts) {
    view.setBigUint64(at, BigInt(part.length));
    bytes.set(part, at + 8);
    at += 8 + part.length;
  }
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
}

/** The client's own key, which never leaves the browser, and the number that follows from it. */
export class Stamper {
  static async open(store) {
    const fresh = () => crypto.subtle.generateKey("Ed25519", false, ["sign", "verify"]);
    const stamper = new Stamper();
    stamper.pair = await store.once("key", fresh);
    const exported = await crypto.subtle.exportKey("raw", stamper.pair.publicKey);
    stamper.publicKey = new Uint8Array(exported);
    const digest = await crypto.subtle.digest("SHA-256", stamper.publicKey);
    stamper.id = new DataView(digest).getBigUint64(0);
    return stamper;
  }

  /** Who made which item when, signed, as text: the form is that of crates/channel/src/stamp.rs. */
  async stamp({ number, madeMs, errorMs, delayMaxMs, content, proof }) {
    const bytes = new Uint8Array(89 + (proof?.length ?? 0));
    const view = new DataView(bytes.buffer);
    bytes[0] = 2;
    bytes.set(this.publicKey, 1);
    view.setBigUint64(33, BigInt(number));
    view.setBigUint64(41, BigInt(Math.round(madeMs)));
    view.setUint32(49, Math.min(Math.ceil(errorMs), 0xffffffff));
    view.setUint32(53, Math.min(Math.round(delayMaxMs), 0xffffffff));
    bytes.set(content, 57);
    if (proof) bytes.set(proof, 89);
    const signed = inDomain("tidegate-stamp-v2", bytes);
    const signature = await crypto.subtle.sign("Ed25519", this.pair.privateKey, signed);
    return toText([...bytes, ...new Uint8Array(signature)]);
  }
}

/** The server's clock by signed exchanges, with a bound on the error (crates/channel/src/clock.rs). */
export class ServerClock {
  constructor() {
    this.best = null;
    this.proof = null;
    this.earlier = null;
  }

  now() {
    return Date.now() + (this.best?.offsetMs ?? 0);
  }

  get errorMs() {
    if (!this.best) return CLOCK.unknownMs;
    return this.best.errorMs + Math.abs(Date.now() - this.best.takenMs) * CLOCK.drift;
  }

  /** One exchange; a relay has no clock, and then nothing changes. Shows the last answer, so that
   * the server sees a round trip and signs it: the proof of the clock's error. */
  async exchange(channel, verifier) {
    const nonce = crypto.getRandomValues(new BigUint64Array(1))[0];
    const shown = this.earlier ? `&earlier=${toText(this.earlier)}` : "";
    const sent = Date.now();
    const asked = `${channel}/.tidegate/time?nonce=${nonce}${shown}`;
    const response = await fetch(asked).catch(() => null);
    const bytes = response?.ok && fromText(await response.text());
    const received = Date.now();
    this.earlier = null;
    if (!bytes || bytes.length !== ANSWER_BYTES) return;
    const [body, signature] = [bytes.subarray(0, 28), bytes.subarray(28)];
    const view = new DataView(body.buffer, body.byteOffset, 28);
    const answers = view.getBigUint64(0) === nonce;
    const signed = { body, signature };
    if (!answers || !(await verifier.signer("tidegate-time-v2", signed, this.now()))) return;
    const [t1, t2] = [8, 16].map((at) => Number(view.getBigUint64(at) / 1000n) / 1000);
    this.earlier = bytes;
    this.#keepProof(bytes, view.getUint32(24), t1);
    // Date.now() is cut to whole milliseconds, twice.
    const errorMs = (received - sent - (t2 - t1)) / 2 + 1;
    if (errorMs < 0 || errorMs > this.errorMs) return;
    this.best = { offsetMs: (t1 - sent + (t2 - received)) / 2, errorMs, takenMs: received };
  }

  /** Keeps the answer that shows the smallest error, by what clocks drift. */
  #keepProof(bytes, roundTripMs, atMs) {
    if (roundTripMs === UNSEEN) return;
    const kept = this.proof;
    const keptMs = kept ? kept.roundTripMs / 2 + (atMs - kept.atMs) * CLOCK.drift : Infinity;
    if (roundTripMs / 2 <= keptMs) this.proof = { bytes, roundTripMs, atMs };
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
