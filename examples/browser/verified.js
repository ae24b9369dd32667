// A copy that knows whether it is whole: it compares itself with the sums of the feed, and takes the
// rows of a bucket that differs (docs/PROTOCOL.md, section 20). With nothing but the browser.
"use strict";

const BUCKETS = 64;
const PAGE_END = "7fffff"; // the slot behind the last entry of a page (5.1)
const CHECK_MS = 18000; // with the answers below the pace of heartbeats, 20 s

class VerifiedCopy extends Copy {
  // *feed* is `https://HOST/feeds/NAME/ops`; *wrong* is told the number of a bucket that differed.
  constructor(feed, changed, wrong = () => {}) {
    super(feed, changed);
    this.wrong = wrong;
    this.places = new Map(); // key of an object, also of a deleted one -> {page, slot, lives}
    this.added = []; // since the last comparison: {page, key, now, before}
    this.floors = new Array(BUCKETS).fill(0); // rows of a bucket may be as late as this page
    this.last = { page: 0, slot: -1 }; // the last operation that was taken
    this.compared = 0;
    this.checkMs = CHECK_MS;
  }

  // The state first, bucket by bucket; then the log behind it, and a comparison now and then.
  async open() {
    if (this.cursor === "0") {
      const told = [];
      await fetch(this.at("sums")); // a server that nobody asked counts now
      for (let bucket = 0; bucket < BUCKETS; bucket++) told.push(await this.mend(bucket));
      this.cursor = cursorBehind(told);
      this.check();
    }
    super.open();
  }

  take(name, event) {
    const place = placeOf(event.lastEventId);
    if (place && name !== "live" && name !== "reset") {
      if (!isAfter(place, this.last)) return; // it was taken from the log meanwhile
      this.last = place;
      const { type, id } = JSON.parse(event.data);
      this.put(keyOf(type, id), { ...place, lives: name !== "delete" && name !== "leave" });
    } else if (name === "reset") {
      this.last = { page: 0, slot: -1 }; // the log may be another one, with lower places
    } else if (name === "live") {
      // Rows of a copy name no place: all of them are taken anew, with their places.
      for (let bucket = 0; bucket < BUCKETS; bucket++) this.mend(bucket);
    }
    super.take(name, event);
  }

  put(key, now) {
    const before = this.places.get(key);
    if (before && !isAfter(now, before)) return;
    this.places.set(key, now);
    this.added.push({ page: now.page, key, now, before });
  }

  async check() {
    for (;;) {
      await sleep(this.checkMs);
      try {
        const { page, sums } = await (await fetch(this.at("sums"))).json();
        await this.compare(page, sums);
      } catch (error) {
        this.changed("reconnecting"); // the next one does it
      }
    }
  }

  // What is held, with the *sums* at *page*. What differs may only be under way: the log has it.
  async compare(page, sums) {
    let differing = await this.differing(page, sums);
    if (differing.length && this.last.page <= page) {
      await this.catchUp(page);
      differing = await this.differing(page, sums);
    }
    for (const bucket of differing) {
      this.wrong(bucket);
      await this.mend(bucket);
    }
    this.added = this.added.filter((each) => each.page > page);
    for (const [key, place] of this.places) {
      if (!place.lives && place.page <= page) this.places.delete(key);
    }
    this.compared += 1;
  }

  // The buckets in which what is held, without what came behind *page*, has other sums than *sums*.
  async differing(page, sums) {
    const held = [...this.places], later = this.added.filter((each) => each.page > page);
    const found = new Array(BUCKETS).fill(0n);
    for (const [key, place] of held) found[bucketOf(key)] += await digest(key, place);
    for (const { key, now, before } of later) {
      found[bucketOf(key)] += (await digest(key, before)) - (await digest(key, now));
    }
    return [...found.keys()].filter((bucket) => {
      const told = sums[bucket]; // null: the feed does not know it just now
      if (told === null || page < this.floors[bucket]) return false;
      return BigInt.asUintN(64, found[bucket]) !== BigInt(`0x${told}`);
    });
  }

  // Take what the log holds behind the last operation, up to *page*: pages, each a line that says how
  // many operations follow (16.4). The stream tells them once more, and they are left out then.
  async catchUp(page) {
    const from = placeOf(this.cursor); // its own page may not be over
    for (let at = (from?.page ?? Infinity) - 1; at < page; ) {
      const query = at > 0 ? `?after=${hex(0, 8)}${hex(at, 10)}${PAGE_END}` : "";
      const answer = await fetch(this.at("pages") + query);
      if (!answer.ok) throw new Error(`pages: ${answer.status}`);
      const lines = (await answer.text()).trimEnd().split("\n");
      if (lines.length === 1) return;
      for (let next = 1; next < lines.length; ) {
        const head = JSON.parse(lines[next++]);
        for (let line = 0; line < head.lines; line++) {
          const { event, ...data } = JSON.parse(lines[next++]);
          const slot = head.slots?.[line] ?? line; // `slots` where the log left some out
          const id = hex(Math.floor(head.at / 1000), 8) + hex(head.page, 10) + hex(slot, 6);
          this.take(event, { lastEventId: id, data: JSON.stringify(data) });
        }
        at = head.page;
      }
    }
  }

  // Put the rows of *bucket* in place of what is held.
  async mend(bucket) {
    const told = { state: null, rows: [] };
    for (let after = ""; after !== null; ) {
      const query = `?bucket=${bucket}` + (after && `&after=${encodeURIComponent(after)}`);
      const lines = (await (await fetch(this.at("rows") + query)).text()).trimEnd().split("\n");
      const head = JSON.parse(lines[0]);
      told.state ??= head.state;
      for (let at = 1; at < lines.length; at += 2) {
        const [key, page, slot, atMs, expiresMs] = JSON.parse(lines[at]);
        const place = { page, slot, lives: expiresMs === 0 };
        told.rows.push({ key, place, seconds: Math.floor(atMs / 1000), line: lines[at + 1] });
      }
      after = head.after;
    }
    const rows = new Map(told.rows.map((row) => [row.key, row]));
    for (const [key, place] of this.places) {
      // What the log told behind the rows stays; what it never told goes.
      const isOfLog = place.page > told.state && place.page <= this.last.page;
      if (bucketOf(key) === bucket && !isOfLog && !rows.has(key)) this.forget(key);
    }
    for (const { key, place, line } of rows.values()) {
      const held = this.places.get(key);
      const isOfLog = held && held.page > told.state && held.page <= this.last.page;
      if (isOfLog && !isAfter(place, held)) continue;
      this.places.set(key, place);
      const { event, ...data } = JSON.parse(line);
      const name = `${data.type}/${data.id}`;
      if (place.lives) this.objects.set(name, data);
      else this.objects.delete(name);
    }
    const latest = told.rows.reduce((page, row) => Math.max(page, row.place.page), 0);
    this.floors[bucket] = Math.max(told.state, latest, this.last.page);
    return told;
  }

  forget(key) {
    const [type, id] = [key.slice(0, key.indexOf("/")), key.slice(key.indexOf("/") + 1)];
    this.places.delete(key);
    this.objects.delete(`${decodeURIComponent(type)}/${id}`);
  }

  at(what) {
    return new URL(what, this.feed).href; // beside `ops`
  }
}

// The cursor of the last page that all buckets hold and that has a row; "0" where there is none.
function cursorBehind(told) {
  const state = Math.min(...told.map((each) => each.state));
  let page = 0, seconds = 0;
  for (const row of told.flatMap((each) => each.rows)) {
    if (row.place.page > state || row.place.page <= page) continue;
    page = row.place.page;
    seconds = row.seconds;
  }
  return page ? hex(seconds, 8) + hex(page, 10) + PAGE_END : "0";
}

// Page and slot of an event id of the log; null for a row of a copy.
function placeOf(id) {
  const page = parseInt(id.slice(8, 18), 16), slot = parseInt(id.slice(18), 16);
  return id.length === 24 && slot < 0x800000 ? { page, slot } : null;
}

const isAfter = (one, two) => one.page > two.page || (one.page === two.page && one.slot > two.slot);
const keyOf = (type, id) => `${type.replaceAll("%", "%25").replaceAll("/", "%2F")}/${id}`;
const hex = (number, digits) => number.toString(16).padStart(digits, "0");
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// 20.2; nothing for what is deleted or was never there.
async function digest(key, place) {
  if (!place || !place.lives) return 0n;
  const text = new TextEncoder().encode(hex(place.page, 10) + hex(place.slot, 6) + key);
  const hash = await crypto.subtle.digest("SHA-256", text);
  return new DataView(hash).getBigUint64(0);
}

// CRC-32 of the key, modulo 64 (20.1).
function bucketOf(key) {
  let crc = ~0;
  for (const byte of new TextEncoder().encode(key)) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return (~crc >>> 0) % BUCKETS;
}
