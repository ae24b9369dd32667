/*
 * Listen to a change feed from a browser or Node.js: register, read all objects, then receive the
 * items that changed. The contract is PROTOCOL 13; the Python class `tidings.client.Listener` has
 * the same.
 *
 *   for await (const signal of new Listener(url, { instance, service, resources: { vm: ["nic"] } }))
 *
 * Signals: { kind: "bootstrap", resource, subResources, route }, { kind: "object", resource,
 * fields }, { kind: "live" }, { kind: "item", ...item }, { kind: "ended", reason, delay, refused }.
 * Times are milliseconds.
 */

import { credentials, feedUrl } from "./addresses.js";
import { errorOfAnswer, Refused } from "./errors.js";
import { parse } from "./numbers.js";
import { credentialsMode, send, textOf } from "./requests.js";

const ITEMS_MAX = 10000; // some megabytes: an item has a few hundred bytes
const HEARTBEAT = 27817; // far below the ten minutes after which an idle connection is cut
const ANSWER = 30000; // to a registration: its function may start cold
const PONG = 10000;
const INVALID_STATE = "Invalid socket state";
const OVERFLOW = "the buffer is full";
const PING = '{"action":"ping"}';
const FINAL_STATUS = [401, 403, 404];
const FINAL = /^(password:|feed:|key: (is|was|has) )/; // refusals that every server would repeat

/* Keeps texts until they are handled; any object with the same methods may replace it. */
export class MemoryBuffer {
  #most;
  #texts = [];

  constructor(most = ITEMS_MAX) {
    this.#most = most;
  }

  get length() {
    return this.#texts.length;
  }

  put(text) {
    return this.#texts.length < this.#most && Boolean(this.#texts.push(text));
  }

  take() {
    return this.#texts.shift();
  }

  clear() {
    this.#texts = [];
  }
}

export class Listener {
  #options;
  #address;
  #url;
  #failures = 0;
  #closed = false;
  #current = null;
  #wake = () => {};

  constructor(url, options) {
    const names = Object.keys(options.resources ?? {});
    if (names.length === 0) throw new TypeError("resources must name at least one");
    this.#options = {
      feed: "main",
      buffer: new MemoryBuffer(),
      minTimeout: 1000,
      maxTimeout: 32000,
      retries: Infinity,
      heartbeat: HEARTBEAT,
      fetchObjects: (bootstrap) => feedObjects(url, bootstrap, options),
      ...options,
      WebSocket: options.WebSocket ?? globalThis.WebSocket,
    };
    if (!this.#options.WebSocket) {
      throw new TypeError("this runtime has no WebSocket; give one as the option WebSocket");
    }
    credentialsMode(options);
    const address = new URL(options.wsUrl ?? url.replace(/^http/, "ws").replace(/\/*$/, "/ws"));
    address.searchParams.set("changefeed", this.#options.feed);
    address.searchParams.set("version", names.length === 1 ? "1" : "2");
    this.#address = address.href;
    this.#url = url;
  }

  /* End the connection and the iteration; nothing connects again. */
  close() {
    this.#closed = true;
    this.#current?.fail("closed");
    this.#wake();
  }

  async *[Symbol.asyncIterator]() {
    while (!this.#closed) {
      const registration = new Registration(this.#address, this.#message(), this.#options);
      this.#current = registration;
      try {
        yield* this.#registered(registration);
      } catch (error) {
        if (this.#closed) return;
        const ended = this.#ended(error.isHandshake ? await this.#explain(error) : error);
        yield ended;
        await this.#sleep(ended.delay);
      } finally {
        registration.fail("closed");
        this.#options.buffer.clear();
      }
    }
  }

  async *#registered(registration) {
    const routes = await registration.routes();
    this.#failures = 0;
    for (const route of routes) {
      const bootstrap = {
        kind: "bootstrap",
        resource: route.resource,
        subResources: route.subResources,
        route: route.bootstrapRoute,
      };
      yield bootstrap;
      for await (const fields of this.#options.fetchObjects(bootstrap)) {
        registration.check();
        yield { kind: "object", resource: route.resource, fields };
      }
    }
    registration.check();
    yield { kind: "live" };
    for (;;) yield { ...parsedItem(await registration.take()), kind: "item" };
  }

  /* Ask over HTTP why a handshake failed, because a browser hides its status. */
  async #explain(error) {
    const { feed, password } = this.#options;
    try {
      const headers = await credentials({ password });
      const { ok, status } = await send(feedUrl(this.#url, feed, "access"), { headers }, this.#options);
      if (FINAL_STATUS.includes(status)) return new Error(`the server answered ${status}`);
      return ok ? new Lost("WebSockets do not pass, or the server has just started") : error;
    } catch {
      return error; // it is not reached over HTTP either
    }
  }

  #ended(error) {
    if (!(error instanceof Lost)) throw error;
    if (error.refused && FINAL.test(error.message)) throw new Error(error.message);
    if (this.#failures >= this.#options.retries) throw new Error("Backoff failed");
    const { minTimeout, maxTimeout } = this.#options;
    const longest = Math.min(maxTimeout, minTimeout * 2 ** Math.min(this.#failures, 64));
    this.#failures += 1;
    const delay = Math.max((longest * (1 + Math.random())) / 2, error.afterMs);
    return { kind: "ended", reason: error.message, delay, refused: error.refused };
  }

  #message() {
    const { instance, service, resources, password } = this.#options;
    const kinds = Object.entries(resources).map(([resource, subResources]) => ({
      resource,
      subResources,
    }));
    const wanted = kinds.length === 1 ? { changeKind: kinds[0] } : { resources: kinds };
    return JSON.stringify({ instance, service, ...wanted, ...(password ? { password } : {}) });
  }

  #sleep(delay) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, delay);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

class Lost extends Error {
  constructor(message, refused = false, { isHandshake = false, afterMs = 0 } = {}) {
    super(message);
    this.refused = refused;
    this.isHandshake = isHandshake;
    this.afterMs = afterMs;
  }
}

/* One connection, from its handshake to the first reason why it ends. */
class Registration {
  #socket;
  #buffer;
  #failure = null;
  #isOpen = false;
  #routes = null;
  #wake = () => {};
  #timer;
  #heartbeat;

  constructor(address, message, { buffer, heartbeat, WebSocket }) {
    this.#buffer = buffer;
    this.#heartbeat = heartbeat;
    this.#socket = new WebSocket(address);
    this.#socket.onopen = () => {
      this.#isOpen = true;
      this.#socket.send(message);
    };
    this.#socket.onmessage = ({ data }) => this.#receive(data);
    this.#socket.onclose = ({ code, reason }) => {
      this.fail(`the server closed the connection (${`${code} ${reason}`.trim()})`);
    };
    this.#socket.onerror = () => this.fail("the connection failed"); // Node.js 20 then reports no close
    this.#expect(ANSWER, () => this.fail("failed to register: no answer"));
  }

  async routes() {
    await this.#until(() => this.#routes);
    return this.#routes;
  }

  /* Return the next item; items that arrived before the end are delivered. */
  async take() {
    await this.#until(() => this.#buffer.length);
    return this.#buffer.take();
  }

  check() {
    if (this.#failure) throw this.#failure;
  }

  fail(reason, refused = false) {
    if (this.#failure) return;
    this.#failure = new Lost(reason, refused, { isHandshake: !this.#isOpen });
    clearTimeout(this.#timer);
    this.#socket.close();
    this.#wake();
  }

  async #until(holds) {
    while (!holds()) {
      this.check();
      await new Promise((resolve) => (this.#wake = resolve));
    }
  }

  #receive(text) {
    if (this.#failure) return;
    if (this.#routes === null) this.#answered(text);
    else if (text.startsWith('{"reply"')) this.#pong(text);
    else this.#keep(text);
    this.#wake();
  }

  #answered(text) {
    const found = parsed(text);
    if (found === undefined) return this.fail(text, true);
    const routes = found?.bootstrapRoutes ?? [found];
    if (!routes.every((route) => typeof route?.bootstrapRoute === "string")) {
      return this.fail(INVALID_STATE);
    }
    this.#routes = routes;
    this.#scheduleHeartbeat();
  }

  #pong(text) {
    if (!["joining", "live"].includes(parsed(text)?.state)) {
      return this.fail("the server has forgotten the registration");
    }
    this.#scheduleHeartbeat();
  }

  #keep(text) {
    if (text.startsWith('{"resource"') || text.startsWith('{"bootstrapRoute')) {
      return this.fail(INVALID_STATE);
    }
    if (this.#buffer.put(text)) return;
    this.#buffer.clear();
    this.fail(OVERFLOW);
  }

  #scheduleHeartbeat() {
    this.#expect(this.#heartbeat, () => {
      this.#socket.send(PING);
      this.#expect(PONG, () => this.fail("the server does not answer"));
    });
  }

  #expect(delay, then) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(then, delay);
  }
}

function parsed(text) {
  try {
    return parse(text);
  } catch {
    return undefined;
  }
}

function parsedItem(text) {
  const item = parsed(text);
  if (typeof item?.changeKind?.resource !== "string") throw new Lost(INVALID_STATE);
  return item;
}

/* Yield the objects of the feed's own route; read nothing from a route of another service. */
async function* feedObjects(base, { route }, options) {
  const address = new URL(base.replace(/\/*$/, "") + route);
  if (!/\/feeds\/[^/]+\/objects$/.test(address.pathname)) return;
  const headers = await credentials(options);
  for (;;) {
    const answer = await send(address, { headers }, options).catch(lose);
    if (!answer.ok) throw await failureOf(answer);
    const page = parsed(await textOf(answer).catch(lose));
    if (!Array.isArray(page?.objects)) throw new Lost("the answer is not from a feed; check the address");
    yield* page.objects;
    if (page.next === null) return;
    address.searchParams.set("after", page.next);
  }
}

/* A final answer would be given again, so it ends the listener. */
async function failureOf(answer) {
  const error = await errorOfAnswer(answer);
  return error instanceof Refused ? error : new Lost(error.message, false, { afterMs: error.afterMs });
}

function lose(error) {
  throw new Lost(error.message);
}
