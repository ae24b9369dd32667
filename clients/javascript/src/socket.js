/* The transport over a WebSocket (PROTOCOL 8). */

import { listsOf, passwordOf, switchesOf } from "./addresses.js";
import { isEventId, MonotonicCursor, NOW } from "./cursors.js";
import { errorOfMessage, Lost } from "./errors.js";
import { parse } from "./numbers.js";

const KEEP_ALIVE_MS = 540000; // a gateway closes a connection after ten silent minutes (8.7)
const SILENT_MS = 3600000; // then a ping checks whether the server still serves the connection
const PONG_WITHIN_MS = 10000;
const SUBSCRIBED_WITHIN_MS = 30000; // a function that starts cold needs longer than for a pong
const CAUGHT_UP_PING_MS = 300; // the interval of questions while the connection catches up
const UNPACKED_BYTES_MAX = 131072; // the maximum unpacked size of a message (8.9)

/* Return the JSON of a message, which may be packed (8.9): base64 never begins with a brace. */
export async function textOf(message) {
  if (message.startsWith("{")) return message;
  const packed = Uint8Array.from(atob(message), (char) => char.charCodeAt(0));
  const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const chunks = [];
  let size = 0;
  for (const reader = unpacked.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) return new Blob(chunks).text();
    chunks.push(value);
    size += value.length;
    if (size > UNPACKED_BYTES_MAX) throw new Error("too large");
  }
}

/* Return a transport to *url* for `{feed, types, parents, ids, leave, erasures, password}`. */
export function overSocket(url, wanted) {
  return (cursor, hooks) => new SocketConnection(url, wanted, cursor, hooks);
}

class SocketConnection {
  #hooks;
  #socket;
  #timers = new Map();
  #ascent = new MonotonicCursor();
  #hasCursor;
  #hasReceived = false;
  #keepAlive = "keepalive";
  #reading = Promise.resolve();

  constructor(url, wanted, cursor, hooks) {
    this.#hooks = hooks;
    this.#hasCursor = !["", NOW].includes(cursor); // the end of the log has no cursor yet
    this.#after("answer", SUBSCRIBED_WITHIN_MS, () => this.#lose("no answer"));
    const socket = (this.#socket = new (wanted.WebSocket ?? globalThis.WebSocket)(url));
    socket.onopen = () => this.#subscribe(wanted, cursor).catch((error) => this.#lose(String(error)));
    const receive = (text) => this.#receive(text);
    const refuse = () => this.#lose("not a message");
    socket.onmessage = ({ data }) => {
      // Unpacking takes a moment; later messages wait for it.
      this.#reading = this.#reading.then(() => textOf(data)).then(receive, refuse).catch(rethrow);
    };
    socket.onclose = socket.onerror = () => this.#lose("connection lost");
  }

  close() {
    for (const timer of this.#timers.values()) clearTimeout(timer);
    this.#timers.clear();
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
  }

  #lose(reason) {
    this.#hooks.lost(new Lost(reason, { isHandshake: !this.#hasReceived }));
  }

  #after(name, ms, act) {
    clearTimeout(this.#timers.get(name));
    this.#timers.set(name, setTimeout(act, ms));
  }

  #clear(name) {
    clearTimeout(this.#timers.get(name));
    this.#timers.delete(name);
  }

  #send(message) {
    this.#socket?.send(JSON.stringify(message));
    this.#postponeKeepAlive();
  }

  // A message of either side keeps the connection open.
  #postponeKeepAlive() {
    if (this.#socket) {
      this.#after("keep-alive", KEEP_ALIVE_MS, () => this.#send({ action: this.#keepAlive }));
    }
  }

  async #subscribe(wanted, cursor) {
    const start = isEventId(cursor) ? { action: "resume", cursor } : { action: "subscribe", from: cursor };
    const message = { feed: "main", ...start };
    if (wanted.feed) message.feed = wanted.feed;
    for (const [name, values] of listsOf(wanted)) message[name] = values;
    for (const name of switchesOf(wanted)) message[name] = true;
    if (typeof DecompressionStream === "function") message.encoding = "gzip";
    const password = await passwordOf(wanted);
    if (password) message.password = password;
    this.#send(message);
  }

  #receive(text) {
    if (!this.#socket) return undefined;
    this.#hasReceived = true;
    let message;
    try {
      message = parse(text);
    } catch {
      return this.#lose("not JSON");
    }
    this.#postponeKeepAlive();
    this.#after("silent", SILENT_MS, () => this.#ping());
    if (message.error?.field === "action" && message.error.value === "keepalive") {
      this.#keepAlive = "ping"; // a server of a release without keep-alives
      return undefined;
    }
    if (message.error) return this.#hooks.refused(errorOfMessage(message.error));
    if (message.reply === "subscribed") return this.#subscribed(message);
    if (message.reply === "pong") return this.#pong(message.state);
    if (Array.isArray(message.events)) return this.#events(message);
    if (message.requestId) return this.#lose(String(message.message)); // of the gateway itself
    return undefined;
  }

  #subscribed(message) {
    this.#hooks.state("catching-up");
    if (!this.#hasCursor && message.cursor) this.#hooks.events([], String(message.cursor));
    this.#ping();
  }

  #ping() {
    this.#clear("ping");
    this.#send({ action: "ping" });
    if (this.#socket) this.#after("answer", PONG_WITHIN_MS, () => this.#lose("no pong"));
  }

  #pong(state) {
    this.#clear("answer");
    if (state === "live") this.#hooks.state("live");
    else if (state === "catching-up" || state === "joining") {
      this.#after("ping", CAUGHT_UP_PING_MS, () => this.#ping());
    } else this.#lose(`the server says ${state}`);
  }

  #events(message) {
    this.#hasCursor = true;
    const cursor = String(message.cursor ?? "");
    const events = message.events
      .map(({ id, event, data, traceparent }) => ({
        id: String(id ?? ""),
        event: String(event ?? ""),
        data: data ?? {},
        ...(traceparent && { traceparent }),
      }))
      .filter((event) => this.#ascent.rises(event, cursor));
    this.#hooks.events(events, cursor && this.#ascent.moves(cursor) ? cursor : "");
  }
}

/* Report an error of the caller's own functions, as an event handler does. */
function rethrow(error) {
  setTimeout(() => {
    throw error;
  });
}
