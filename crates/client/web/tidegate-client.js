// A browser's side of the channel (paper 001): listens to signed control messages, holds items
// back, stamps them, keeps them in IndexedDB or memory. A plain ES module without a build step;
// tidegate-channel.js lies beside it.
//
//   import { Client } from "./tidegate-client.js";
//   const client = await Client.open({ channel: "http://host:8090", key: "HEX", store: "bids" });
//   const outcome = await client.submit("/bids", { method: "POST", body: "amount=120" }, "lot 7");

import { Pacer, ServerClock, Stamper, Verifier, contentOf } from "./tidegate-channel.js";

/** Comparisons of clocks: so many at the beginning, of which the best counts, then now and then. */
const CLOCK = { exchanges: 4, everyMs: 600_000 };

/** Wait before listening elsewhere, doubled while nothing is heard. */
const AGAIN_MS = { first: 500, last: 10_000 };

/** Reasons for which the proxy never passes an item on: these are its answer. */
const FINAL = ["late", "conflict", "too-large"];

/** A held item goes again after this long, if the proxy does not say when. */
const HELD_S = 60;

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Keeps items, their numbers and the key over a reload of the page, where the browser allows it. */
class Store {
  static async open(name) {
    const store = new Store();
    store.items = new Map();
    store.memory = new Map();
    store.database = await new Promise((resolve) => {
      if (!globalThis.indexedDB) return resolve(null);
      const request = indexedDB.open(`tidegate-${name}`, 2);
      request.onupgradeneeded = () => {
        const { objectStoreNames } = request.result;
        for (const table of ["items", "meta"]) {
          if (!objectStoreNames.contains(table)) request.result.createObjectStore(table);
        }
      };
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => resolve(null);
    });
    const keys = (await store.#run("items", (items) => items.getAllKeys())) ?? [];
    const values = (await store.#run("items", (items) => items.getAll())) ?? [];
    keys.forEach((key, index) => store.items.set(key, values[index]));
    return store;
  }

  async put(key, value) {
    this.items.set(key, value);
    await this.#run("items", (items) => items.put(value, key));
  }

  async delete(key) {
    this.items.delete(key);
    await this.#run("items", (items) => items.delete(key));
  }

  /** A number that no other item has, whichever window made it. */
  number() {
    return this.#update("next", (next = 1) => next + 1).then((next) => next - 1);
  }

  /** What is kept under a name; made when there is nothing yet. */
  async once(name, make) {
    const kept = await this.#run("meta", (meta) => meta.get(name));
    if (kept) return kept;
    const made = await make();
    return this.#update(name, (other) => other ?? made);
  }

  /** Reads and writes in one transaction; gives back what was written. */
  #update(name, change) {
    if (!this.database) {
      this.memory.set(name, change(this.memory.get(name)));
      return Promise.resolve(this.memory.get(name));
    }
    let written;
    return this.#run("meta", (meta) => {
      const read = meta.get(name);
      read.onsuccess = () => meta.put((written = change(read.result)), name);
      return read;
    }).then(() => written);
  }

  #run(table, call) {
    if (!this.database) return Promise.resolve(undefined);
    return new Promise((resolve, reject) => {
      const transaction = this.database.transaction(table, "readwrite", { durability: "strict" });
      const request = call(transaction.objectStore(table));
      transaction.oncomplete = () => resolve(request.result);
      transaction.onerror = () => reject(transaction.error);
    });
  }
}

/** Listens, holds back, sends. Events: "state" whenever something changed. */
export class Client extends EventTarget {
  /** Needs Ed25519 of the browser (and https or localhost, as all of `crypto.subtle`). */
  static async open(options) {
    const { channel, key, store = "items", fallbackMs = 60_000, silenceMs = 10_000 } = options;
    const client = new Client();
    client.channel = channel;
    client.verifier = await Verifier.create(key);
    client.store = await Store.open(store);
    client.stamper = await Stamper.open(client.store);
    client.id = client.stamper.id;
    client.clock = new ServerClock();
    client.pacer = new Pacer(client.id);
    client.delayMaxMs = options.delayMaxMs ?? 3_600_000;
    client.heard = -Infinity;
    client.lagMs = 0;
    client.graceMs = options.graceMs ?? 600_000;
    client.terms = { prolongedMs: 0, deadlineMs: null };
    client.issuedMs = 0;
    client.held = null;
    client.tries = 0;
    client.retryAt = 0;
    client.busy = false;
    client.waiting = new Map();
    client.fallback = { kind: "interval", intervalMs: fallbackMs };
    client.silenceMs = silenceMs;
    client.pacer.apply(client.now(), client.fallback);
    client.sources = new Map();
    client.againMs = AGAIN_MS.first;
    client.asked = client.now();
    client.#join();
    client.#keepClock();
    client.timer = setInterval(() => client.#tick(), 200);
    return client;
  }

  /** The server's time, as far as it is known. */
  now() {
    return this.clock.now();
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

  /** Accepts a request; resolves with { response }, { replaced: true } or { expired: true }. */
  async submit(url, options, key = crypto.randomUUID(), delayMaxMs = this.delayMaxMs) {
    const number = await this.store.number();
    const madeMs = this.now();
    const { errorMs, proof } = this.clock;
    // As bytes: a form has another boundary each time that it is sent, and a stamp is for one content.
    const request = new Request(url, options);
    const body = await request.arrayBuffer();
    const { pathname, search } = new URL(request.url);
    const content = await contentOf(request.method, pathname + search, body);
    const item = {
      url: request.url,
      method: request.method,
      headers: [...request.headers],
      credentials: request.credentials,
      body,
      number,
      madeMs,
      delayMaxMs,
    };
    item.stamp = await this.stamper.stamp({ ...item, errorMs, content, proof: proof?.bytes });
    const older = this.store.items.get(key);
    const outcome = new Promise((resolve) => this.waiting.set(number, resolve));
    await this.store.put(key, item);
    // One that is under way has an outcome of its own.
    if (older && older !== this.underWay) this.#settle(older, { replaced: true });
    this.#changed();
    this.#tick();
    return outcome;
  }

  close() {
    clearInterval(this.timer);
    clearInterval(this.clockTimer);
    this.closed = true;
    for (const source of this.sources.values()) source.close();
  }

  /** Listens where the tracker says, so that the publisher need not serve everybody; `dead` did not answer. */
  async #join(dead) {
    this.asked = this.now();
    // Addresses go as they are: `&` is the only character that must not be in one.
    const said = [...this.sources.keys()].map((url) => `parent=${url}`);
    if (dead) said.push(`dead=${dead}`);
    if (this.tries > 0) said.push(`tries=${this.tries}`);
    const response = await fetch(`${this.channel}/.tidegate/join?${said.join("&")}`).catch(() => null);
    const { parents = [], wait_ms = 0 } = response?.ok ? await response.json() : {};
    await sleep(wait_ms);
    // A page of an https site must not listen to http.
    const secure = globalThis.location?.protocol === "https:";
    for (const url of parents) if (!secure || url.startsWith("https:")) this.#listen(url);
    if (this.sources.size === 0) this.#listen(this.channel);
    this.tries = parents.length > 0 ? 0 : this.tries + 1;
  }

  #listen(url) {
    if (this.closed || this.sources.has(url)) return;
    const source = new EventSource(`${url}/.tidegate/channel`);
    source.onmessage = (event) => this.#onText(event.data);
    source.onerror = () => this.#lose(url);
    this.sources.set(url, source);
  }

  /** A parent that broke off or fell silent: another one, later each time and not all at once. */
  async #lose(url) {
    this.sources.get(url)?.close();
    this.sources.delete(url);
    const wait = this.againMs * (0.5 + Math.random() / 2);
    this.againMs = Math.min(2 * this.againMs, AGAIN_MS.last);
    await sleep(wait);
    if (!this.closed) await this.#join(url);
  }

  async #keepClock() {
    const exchange = () => this.clock.exchange(this.channel, this.verifier);
    this.clockTimer = setInterval(exchange, CLOCK.everyMs);
    for (let i = 0; i < CLOCK.exchanges; i += 1) await exchange();
  }

  async #onText(text) {
    const message = await this.verifier.accept(text, this.now(), this.clock.errorMs);
    if (!message) return;
    // The first message after a silence may have waited for us: it says nothing about the way.
    if (!this.partitioned) this.lagMs = Math.max(0, Math.round(this.now() - message.issuedMs));
    this.heard = this.now();
    this.terms = message.terms;
    this.issuedMs = Math.max(this.issuedMs, message.issuedMs);
    this.againMs = AGAIN_MS.first;
    this.pacer.apply(this.now(), message.strategy);
    this.#changed();
    this.#tick();
  }

  async #tick() {
    if (this.partitioned && this.pacer.strategy !== this.fallback) {
      this.pacer.apply(this.now(), this.fallback);
      this.#changed();
    }
    if (this.partitioned && this.now() - this.asked > this.silenceMs) {
      this.asked = this.now();
      for (const url of this.sources.keys()) this.#lose(url);
    }
    if (this.busy) return;
    await this.#expire();
    const inTime = ([, item]) => this.#untilMs(item) > this.now();
    const next = [...this.store.items].find(inTime);
    if (this.busy || !next || this.waitMs > 0) return;
    const [key, item] = next;
    this.busy = true;
    this.underWay = item;
    this.pacer.onSent(this.now());
    this.#changed();
    const response = await this.#send(item);
    this.held = this.#heldBy(response);
    if (response && !this.held && ![429, 502, 503, 504].includes(response.status)) {
      // A newer item of the same key may have come meanwhile.
      if (this.store.items.get(key) === item) await this.store.delete(key);
      this.#settle(item, { response });
    } else {
      if (this.store.items.get(key) !== item) this.#settle(item, { replaced: true });
      const after = Number(response?.headers.get("retry-after") ?? (this.held ? HELD_S : 1)) * 1000;
      this.retryAt = Math.max(this.now() + after, this.pacer.notBefore(this.now()));
    }
    this.busy = false;
    this.underWay = null;
    this.#changed();
    this.#tick();
  }

  #settle(item, outcome) {
    this.waiting.get(item.number)?.(outcome);
    this.waiting.delete(item.number);
  }

  /** Why the proxy did not pass an item on: no answer to the item, which stays. */
  #heldBy(response) {
    const reason = response?.headers.get("tidegate-held");
    return reason && !FINAL.includes(reason) ? reason : null;
  }

  /** Until when an item may go. */
  #untilMs(item) {
    return item.madeMs + item.delayMaxMs + this.terms.prolongedMs;
  }

  /** An item is given up by the server's word: a message that was issued after its time and a grace. */
  async #expire() {
    const knownMs = Math.min(this.now(), this.issuedMs);
    for (const [key, item] of this.store.items) {
      if (this.#untilMs(item) + this.graceMs > knownMs) continue;
      await this.store.delete(key);
      this.#settle(item, { expired: true });
    }
  }

  async #send(item) {
    const id = this.id.toString(16).padStart(16, "0");
    const seq = this.verifier.lastSeq;
    const told = seq < 0n ? "" : `;seq=${seq};lag=${this.lagMs}`;
    const headers = new Headers(item.headers);
    headers.set("tidegate-client", `${id}${told}`);
    headers.set("tidegate-stamp", item.stamp);
    headers.set("idempotency-key", `"${id}-${item.number}"`);
    const { method, credentials } = item;
    const body = item.body.byteLength > 0 ? item.body : undefined;
    try {
      const response = await fetch(item.url, { method, credentials, headers, body });
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
