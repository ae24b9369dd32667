/*
 * A copy of the objects of a feed that compares itself with the feed's checksums, and reads the
 * rows of a bucket that differs (PROTOCOL 20). It has the rules of the Python class `Fold`.
 */

import { credentials, feedUrl, listText } from "./addresses.js";
import { EVERYTHING, hex, idOf, isAfter, PAGE_END, placeOf } from "./cursors.js";
import { errorOfAnswer, Lost, Refused } from "./errors.js";
import { Feed } from "./feed.js";
import { delayMs } from "./reader.js";
import { notOfFeed, parsed, send, sleep, textOf } from "./requests.js";

const BUCKETS = 64;
const CHECK_MS = 18000; // with the time for answers, still below the heartbeat interval of 20 s
const TOGETHER = 4; // requests at a time; a browser opens six connections to a server
const NOWHERE = { page: 0, slot: -1 };
const GONE = ["other_log", "log_fell_off", "fell_off"]; // a `reset` follows on the stream

/* The key of an object (16.6). */
export const keyOf = (type, id) => `${type.replaceAll("%", "%25").replaceAll("/", "%2F")}/${id}`;

export class Copy {
  objects = new Map(); // key -> latest operation
  places = new Map(); // key, also of a deleted object -> {page, slot, isDeleted} of its latest operation
  compared = 0; // comparisons so far
  #url;
  #options;
  #feed = null;
  #isClosed = false;
  #recent = []; // operations since the last comparison: {page, key, now, before}
  #floors = new Array(BUCKETS).fill(0); // the latest page that the rows of a bucket may contain
  #last = NOWHERE; // page and slot of the last operation
  #hasRows = false; // rows without a place arrived since the last `live`
  #wrong = new Set(); // buckets to read again

  constructor(url, options = {}) {
    if (!globalThis.crypto?.subtle) throw new TypeError("checksums need HTTPS, localhost or Node.js");
    for (const name of ["parents", "ids", "leave", "store", "cursor"]) {
      if (options[name] !== undefined) throw new TypeError(`a copy has no option ${name}`);
    }
    new Feed(url, options); // throws now if an option is wrong
    this.#url = url;
    this.#options = options;
  }

  /* Return the latest operation of an object; undefined if it does not exist. */
  get(type, id) {
    return this.objects.get(keyOf(type, id));
  }

  close() {
    this.#isClosed = true;
    this.#feed?.close();
  }

  /*
   * Keep the copy up to date; yield each event that changed it, and `live` each time the rows of
   * the feed were read: at the beginning, after a reset, and after a repair.
   */
  async *[Symbol.asyncIterator]() {
    const cursor = await this.#load();
    if (this.#isClosed) return;
    this.#feed = new Feed(this.#url, { ...this.#options, cursor });
    const events = this.#feed[Symbol.asyncIterator]();
    yield { id: cursor, event: "live", data: {} };
    const timer = new Timer();
    let next = events.next();
    try {
      for (let dueMs = this.#nextCheckMs(); ; ) {
        const found = await Promise.race([next, timer.at(dueMs)]);
        if (found?.done) return;
        if (found) {
          if (this.#handle(found.value)) yield found.value;
          next = events.next();
        }
        const isDue = Date.now() >= dueMs;
        if (isDue) dueMs = this.#nextCheckMs();
        if (isDue || this.#wrong.size) yield* await this.#repair(isDue);
      }
    } finally {
      timer.clear();
      this.#feed.close();
      await next.catch(() => {}); // an error was thrown already, or is of no interest any more
    }
  }

  #nextCheckMs() {
    return Date.now() + (this.#options.checkMs ?? CHECK_MS);
  }

  /* Read all rows; return the cursor at which the log continues. */
  async #load() {
    for (let attempt = 0; ; attempt++) {
      try {
        await this.#ask("sums"); // after this request, a server counts
        return startOf(await this.#reload([...this.#floors.keys()]));
      } catch (error) {
        if (!(error instanceof Lost)) throw error;
        if (this.#isClosed) return "";
        const wait = Math.max(delayMs(attempt), error.afterMs);
        this.#options.onState?.("waiting", wait, error.message);
        await sleep(wait, this.#options.signal);
        if (this.#isClosed) return "";
      }
    }
  }

  /* Compare, if that *isDue*, and read the rows of wrong buckets; return the events of the changes. */
  async #repair(isDue) {
    const late = [];
    try {
      if (isDue && !this.#wrong.size) await this.#compare(late);
      if (this.#wrong.size) {
        await this.#reload([...this.#wrong]);
        this.#wrong.clear();
        late.push({ id: this.#feed.cursor, event: "live", data: {} });
      }
    } catch (error) {
      // The next check tries again.
      const isExpected = error instanceof Lost || (error instanceof Refused && GONE.includes(error.code));
      if (!isExpected) throw error;
    }
    return late;
  }

  /* Return true if *event* changed the copy. */
  #handle(event) {
    const isMark = event.event === "reset" || event.event === "live";
    const place = isMark ? null : placeOf(event.id);
    if (!place) {
      this.#hasRows ||= event.event !== "live";
      if (event.event === "reset") this.#last = NOWHERE; // another log may follow, with lower places
      if (event.event === "live" && this.#hasRows) {
        this.#hasRows = false;
        for (let bucket = 0; bucket < BUCKETS; bucket++) this.#wrong.add(bucket);
      }
      return false;
    }
    if (!isAfter(place, this.#last)) return false; // it was read from the log in the meantime
    this.#last = place;
    return this.#apply(event, place);
  }

  #apply({ event, data }, place) {
    const key = keyOf(data.type, data.id);
    const before = this.places.get(key);
    if (before && !isAfter(place, before)) return false;
    const now = { ...place, isDeleted: event === "delete" || event === "leave" };
    this.#put(key, now, data);
    this.#recent.push({ page: place.page, key, now, before });
    return true;
  }

  #put(key, place, data) {
    this.places.set(key, place);
    if (place.isDeleted) this.objects.delete(key);
    else this.objects.set(key, data);
  }

  async #compare(late) {
    const cursor = placeOf(this.#feed.cursor);
    if (!cursor) return; // during a copy: its rows have no places
    const { page, sums } = parsed(await this.#ask("sums"));
    if (!Number.isInteger(page) || sums?.length !== BUCKETS) notOfFeed();
    let differing = await this.#differing(page, sums);
    if (differing.length && this.#last.page <= page) {
      await this.#catchUp(cursor, page, late); // the operations may be on their way
      differing = await this.#differing(page, sums);
    }
    for (const bucket of differing) {
      this.#options.onWrong?.(bucket);
      this.#wrong.add(bucket);
    }
    this.#recent = this.#recent.filter((each) => each.page > page);
    for (const [key, place] of this.places) {
      if (place.isDeleted && place.page <= page) this.places.delete(key);
    }
    if (sums.some((sum) => sum !== null)) this.compared += 1;
  }

  /* Return the buckets that differ from *sums*; operations after *page* do not count. */
  async #differing(page, sums) {
    const found = new Array(BUCKETS).fill(0n);
    for (const [key, place] of this.places) found[bucketOf(key)] += await digest(key, place);
    for (const { key, now, before } of this.#recent.filter((each) => each.page > page)) {
      found[bucketOf(key)] += (await digest(key, before)) - (await digest(key, now));
    }
    return [...found.keys()].filter((bucket) => {
      const sum = sums[bucket]; // null: the feed does not know it at the moment
      if (sum === null || page < this.#floors[bucket]) return false;
      return BigInt.asUintN(64, found[bucket]) !== BigInt(`0x${sum}`);
    });
  }

  /* Handle the operations of the log from the page of *cursor* up to *page* (16.3, 16.4). */
  async #catchUp(cursor, page, late) {
    for (let at = cursor.page - 1; at < page; ) {
      const text = await this.#ask("pages", at > 0 ? { after: idOf(0, at, PAGE_END) } : {});
      const lines = text.trimEnd().split("\n");
      if (lines.length === 1) return;
      for (let next = 1; next < lines.length; ) {
        const head = parsed(lines[next++]);
        for (let line = 0; line < head.lines; line++) {
          const { event, ...data } = parsed(lines[next++]);
          const slot = head.slots?.[line] ?? line; // `slots` is present if entries were left out
          const found = { id: idOf(Math.floor(head.at / 1000), head.page, slot), event, data };
          // Entries of other kinds, such as changes (12), are no operations on an object.
          if (data.type !== undefined && this.#handle(found)) late.push(found);
        }
        at = head.page;
      }
    }
  }

  /* Replace the content of *buckets* with the feed's rows; return the rows. */
  async #reload(buckets) {
    const found = [];
    for (let from = 0; from < buckets.length; from += TOGETHER) {
      const some = buckets.slice(from, from + TOGETHER);
      found.push(...(await Promise.all(some.map((bucket) => this.#rows(bucket)))));
    }
    this.#replace(found);
    return found;
  }

  async #rows(bucket) {
    const found = { bucket, state: null, rows: new Map() };
    for (let after = ""; after !== null; ) {
      const text = await this.#ask("rows", { bucket, after: after || undefined });
      const lines = text.trimEnd().split("\n");
      const head = parsed(lines[0]);
      if (!Number.isInteger(head?.state) || head.after === undefined) notOfFeed();
      found.state ??= head.state;
      for (let at = 1; at < lines.length; at += 2) {
        const [key, page, slot, atMs, expiresMs] = parsed(lines[at]);
        const { event: _, ...data } = parsed(lines[at + 1]);
        const place = { page, slot, isDeleted: expiresMs !== 0 };
        found.rows.set(key, { place, data, seconds: Math.floor(atMs / 1000) });
      }
      after = head.after;
    }
    return found;
  }

  /* Put the rows of *found* in place of the content of their buckets. */
  #replace(found) {
    const states = new Map(found.map(({ bucket, state }) => [bucket, state]));
    for (const [key, { page }] of this.places) {
      const state = states.get(bucketOf(key));
      // Operations of the log that are later than the rows stay.
      if (state === undefined || (page > state && page <= this.#last.page)) continue;
      this.places.delete(key);
      this.objects.delete(key);
    }
    for (const { bucket, state, rows } of found) {
      let latest = Math.max(state, this.#last.page);
      for (const [key, { place, data }] of rows) {
        const held = this.places.get(key);
        if (!held || isAfter(place, held)) this.#put(key, place, data);
        latest = Math.max(latest, place.page);
      }
      this.#floors[bucket] = latest;
    }
  }

  /* Return the text of an answer. */
  async #ask(path, query = {}) {
    const { feed = "main", types, signal } = this.#options;
    const all = { ...query, types: types?.length ? listText(types) : undefined };
    const headers = await credentials(this.#options);
    const answer = await send(feedUrl(this.#url, feed, path, all), { headers, signal }, this.#options);
    if (!answer.ok) throw await errorOfAnswer(answer);
    return textOf(answer, signal);
  }
}

/* Return the cursor after the last page that has a row and that all buckets contain. */
function startOf(buckets) {
  const state = Math.min(...buckets.map((each) => each.state));
  const rows = buckets.flatMap((each) => [...each.rows.values()]);
  const known = rows.filter((row) => row.place.page <= state);
  if (!known.length) return EVERYTHING;
  const last = known.reduce((one, two) => (two.place.page > one.place.page ? two : one));
  return idOf(last.seconds, last.place.page, PAGE_END);
}

/* A timer that can be waited for again and again. */
class Timer {
  #timer;

  at(dueMs) {
    this.clear();
    return new Promise((resolve) => {
      this.#timer = setTimeout(resolve, Math.max(0, dueMs - Date.now()));
    });
  }

  clear() {
    clearTimeout(this.#timer);
  }
}

/* Return the digest (20.2) of an object at *place*; 0 if it is missing or deleted. */
async function digest(key, place) {
  if (!place || place.isDeleted) return 0n;
  if (place.digest === undefined) {
    const text = new TextEncoder().encode(hex(place.page, 10) + hex(place.slot, 6) + key);
    const hash = await crypto.subtle.digest("SHA-256", text);
    place.digest = new DataView(hash).getBigUint64(0);
  }
  return place.digest;
}

/* Return the bucket of a key: its CRC-32 modulo 64 (20.1). */
function bucketOf(key) {
  let crc = ~0;
  for (const byte of new TextEncoder().encode(key)) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return (~crc >>> 0) % BUCKETS;
}
