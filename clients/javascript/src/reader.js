/*
 * Read a feed without end: connect, pass the events on, and reconnect at the last cursor.
 *
 * `overSocket` and `overStream` are the transports; each opens one connection at a cursor.
 */

import { Handled, NOW, placeOf } from "./cursors.js";
import { Lost } from "./errors.js";

const DELAY_MS_MIN = 1000;
const DELAY_MS_MAX = 32000; // longer delays are noticed after an outage
const STEADY_MS = 60000; // a connection that lasted this long resets the delay, even without events
const SETTLE_MS = 500; // events that arrive this soon after `live` may have been on their way

/* Return the milliseconds before attempt *attempt* (from 0): they double, and half is random. */
export function delayMs(attempt, chance = Math.random()) {
  const full = Math.min(DELAY_MS_MIN * 2 ** Math.min(attempt, 8), DELAY_MS_MAX);
  return full * (0.5 + 0.5 * chance);
}

/*
 * *open* is a transport: it takes a cursor and the hooks of a connection, and returns an object
 * with `close()`. *on* has functions:
 *   state(name, ms, reason)  connecting, catching-up, live, waiting, paused, refused
 *   events(list)             events that were not delivered before
 *   cursor(text)             everything up to this cursor was passed to `events`
 *   resumed({cursor, missed})  a connection that resumed at *cursor* is live again
 *   refused(error)           a final answer; the reader has stopped
 */
export class Reader {
  #open;
  #on;
  #handled;
  #connection = null;
  #current = null; // identifies the connection whose hooks are obeyed
  #openedMs = 0;
  #attempt = 0;
  #timers = new Map();
  #resuming = null;
  #isStopped = false;

  constructor(open, cursor, on) {
    this.#open = open;
    this.#on = on;
    this.cursor = cursor || NOW;
    this.#handled = new Handled(this.cursor);
  }

  /* Connect now, also if the reader waits or is paused. */
  start() {
    this.#drop();
    if (this.#isStopped) return;
    this.#tell("state", "connecting");
    const second = Math.floor(Date.now() / 1000);
    this.#resuming = placeOf(this.cursor) && { cursor: this.cursor, missed: 0, second };
    this.#openedMs = Date.now();
    const mark = (this.#current = {});
    const whileCurrent = (act) => (...values) => {
      if (this.#current === mark) act(...values); // a closed connection may still send something
    };
    const connection = this.#open(this.cursor, {
      state: whileCurrent((name) => this.#enter(name)),
      events: whileCurrent((events, cursor) => this.#receive(events, cursor)),
      lost: whileCurrent((error) => this.#lose(error)),
      refused: whileCurrent((error) => this.#refuse(error)),
    });
    if (this.#current === mark) this.#connection = connection;
    else connection.close();
  }

  stop() {
    this.#isStopped = true;
    this.#drop();
  }

  /* Disconnect, and reconnect after *ms* milliseconds or when `start` is called. */
  pause(ms = Infinity) {
    this.#drop();
    this.#tell("state", "paused", ms);
    if (ms < Infinity) this.#after("reconnect", ms, () => this.start());
  }

  #tell(name, ...values) {
    this.#on[name]?.(...values);
  }

  #drop() {
    for (const timer of this.#timers.values()) clearTimeout(timer);
    this.#timers.clear();
    const connection = this.#connection;
    this.#connection = this.#current = null;
    connection?.close();
  }

  #after(name, ms, act) {
    clearTimeout(this.#timers.get(name));
    this.#timers.set(name, setTimeout(act, ms));
  }

  #enter(name) {
    this.#tell("state", name);
    if (name === "live" && this.#resuming) this.#after("settle", SETTLE_MS, () => this.#settle());
  }

  #settle() {
    const { cursor, missed } = this.#resuming;
    this.#resuming = null;
    this.#tell("resumed", { cursor, missed });
  }

  #lose(error) {
    this.#drop();
    if (Date.now() - this.#openedMs >= STEADY_MS) {
      this.#attempt = 0;
      if (error.isPlanned) return this.start();
    }
    const wait = Math.max(delayMs(this.#attempt), error.afterMs);
    this.#attempt += 1;
    this.#tell("state", "waiting", wait, error.message);
    this.#after("reconnect", wait, () => this.start());
    return undefined;
  }

  #refuse(error) {
    if (error instanceof Lost) return this.#lose(error);
    this.stop();
    this.#tell("state", "refused", 0, error.message);
    this.#tell("refused", error);
    return undefined;
  }

  #receive(events, cursor = "") {
    const fresh = events.filter((event) => this.#handled.accepts(event));
    if (fresh.length) {
      this.#attempt = 0; // an event shows that the server is well; a connection does not
      this.cursor = fresh[fresh.length - 1].id || this.cursor;
      if (this.#resuming) this.#resuming.missed += fresh.filter((each) => this.#isMissed(each)).length;
      this.#tell("events", fresh);
    }
    if (cursor) {
      this.cursor = cursor;
      this.#handled.moveTo(cursor);
    }
    this.#tell("cursor", this.cursor);
  }

  /* Return true if the event was committed before the connection resumed (5.1: its second). */
  #isMissed(event) {
    return parseInt(event.id.slice(0, 8), 16) <= this.#resuming.second;
  }
}
