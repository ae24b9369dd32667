/*
 * The events of a feed, without end:
 *
 *   for await (const event of new Feed("https://feed.example", { cursor: "0", store })) { ... }
 */

import { feedUrl, socketUrl } from "./addresses.js";
import { AFTER_RESET, EVERYTHING, NOW } from "./cursors.js";
import { withFallback } from "./fallback.js";
import { Reader } from "./reader.js";
import { credentialsMode } from "./requests.js";
import { overSocket } from "./socket.js";
import { overStream } from "./stream.js";

const BUFFERED_MAX = 10000; // usually up to 10 MB: an operation rarely has more than 1 KB
const SAVE_MS = 1000;

export class Feed {
  #options;
  #open;
  #inbox = null;
  #isClosed = false;
  #savedMs = 0;
  #saved = "";

  constructor(url, options = {}) {
    feedUrl(url, options.feed ?? "main", "ops"); // throws now if the address is wrong
    const hasSocket = Boolean(options.WebSocket ?? globalThis.WebSocket);
    const transport = options.transport ?? (hasSocket ? "ws" : "sse");
    if (!["ws", "sse"].includes(transport)) throw new TypeError('transport must be "ws" or "sse"');
    if (transport === "ws" && !hasSocket) {
      throw new TypeError('this runtime has no WebSocket; use the transport "sse"');
    }
    credentialsMode(options);
    this.#options = options;
    this.#open = transportOf(url, transport, options);
    this.cursor = options.cursor ?? NOW; // everything up to it is handled
  }

  /* End every iteration. The cursor is saved. */
  close() {
    this.#isClosed = true;
    this.#inbox?.end();
  }

  /*
   * Yield the events after the stored cursor, else after `cursor`. An event counts as handled when
   * the next one is requested, so an event at which a loop ends is delivered again.
   */
  async *[Symbol.asyncIterator]() {
    const { store, signal, bufferMax = BUFFERED_MAX } = this.#options;
    if (this.#inbox) throw new TypeError("this feed is already iterated");
    signal?.throwIfAborted();
    const inbox = (this.#inbox = new Inbox());
    const abort = () => inbox.fail(signal.reason, true);
    signal?.addEventListener("abort", abort);
    let reader = null;
    try {
      if (this.#isClosed) return;
      this.#saved = this.cursor = (await store?.load()) || this.cursor;
      reader = this.#reader(inbox, bufferMax);
      reader.start();
      for (;;) {
        await this.#saveIfDue(inbox.length === 0);
        const item = await inbox.take();
        if (item === null) return;
        if (item.event) yield item;
        this.cursor = item.id || this.cursor;
        if (inbox.isPaused && inbox.length <= bufferMax / 2) {
          inbox.isPaused = false;
          reader.start();
        }
      }
    } finally {
      reader?.stop();
      signal?.removeEventListener("abort", abort);
      this.#inbox = null;
      if (reader) await this.#saveIfDue(true);
    }
  }

  #reader(inbox, bufferMax) {
    let last = this.cursor;
    const reader = new Reader(this.#open, this.cursor, {
      state: (...values) => this.#options.onState?.(...values),
      resumed: (resumed) => this.#options.onResumed?.(resumed),
      refused: (error) => inbox.fail(error),
      events: (events) => {
        inbox.put(events);
        last = events[events.length - 1].id || last;
      },
      cursor: (cursor) => {
        if (cursor !== last) inbox.put([{ id: (last = cursor) }]);
        // A WebSocket cannot wait for a slow consumer. So the connection is closed while the buffer
        // is full; the reader then resumes at its cursor.
        if (inbox.length >= bufferMax) {
          inbox.isPaused = true;
          reader.pause();
        }
      },
    });
    return reader;
  }

  async #saveIfDue(isNow) {
    // After a restart, the copy has to begin again: objects that were handled since the `reset`
    // may be deleted in the meantime (PROTOCOL 6.3).
    const cursor = this.cursor === AFTER_RESET ? EVERYTHING : this.cursor;
    if (["", NOW, this.#saved].includes(cursor)) return;
    if (!isNow && Date.now() - this.#savedMs < SAVE_MS) return;
    this.#savedMs = Date.now();
    await this.#options.store?.save(cursor);
    this.#saved = cursor;
  }
}

function transportOf(url, transport, options) {
  const { wsUrl = socketUrl(url), streamUrl } = options;
  const stream = overStream(streamUrl ?? url, options);
  if (transport === "sse") return stream;
  const socket = overSocket(wsUrl, options);
  // A stage with a WebSocket at another address has its streams at a third one.
  const hasStream = streamUrl || new URL(wsUrl, url).host === new URL(url).host;
  return hasStream ? withFallback(socket, stream, options.transport === "ws") : socket;
}

/* The items that were received and not yet handled, and how the iteration ends. */
class Inbox {
  #items = [];
  #next = 0; // index in #items, because removing the first item of a long array is slow
  #failure = null;
  #isEnded = false;
  #wake = () => {};
  isPaused = false;

  get length() {
    return this.#items.length - this.#next;
  }

  put(items) {
    for (const item of items) this.#items.push(item);
    this.#wake();
  }

  /* Let `take` throw *error*: after the received items, or *isUrgent*. */
  fail(error, isUrgent = false) {
    if (isUrgent) this.#next = this.#items.length;
    this.#failure ??= { error };
    this.#wake();
  }

  end() {
    this.#isEnded = true;
    this.#wake();
  }

  /* Return the next item; null at the end. */
  async take() {
    for (;;) {
      if (this.#isEnded) return null;
      if (this.length > 0) break;
      if (this.#failure) throw this.#failure.error;
      this.#items = [];
      this.#next = 0;
      await new Promise((resolve) => (this.#wake = resolve));
    }
    return this.#items[this.#next++];
  }
}
