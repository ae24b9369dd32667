// Keeps a copy of a feed in a page, with nothing but the browser's own EventSource.
"use strict";

const EVENTS = ["reset", "live", "insert", "update", "delete", "leave"];

class EventSourceCopy {
  constructor(feed, changed) {
    this.feed = feed;
    this.changed = changed;
    this.objects = new Map();
    this.cursor = "0"; // a copy of everything first
    this.log = []; // names of the last events, to look at
  }

  // EventSource sends no header of ours, so the cursor goes into the address. When a stream ends,
  // EventSource reconnects and sends the last id in its own header. With cursors=true the feed
  // keeps that id current even if no event arrives.
  open() {
    const address = new URL(this.feed);
    address.searchParams.set("lastEventId", this.cursor);
    address.searchParams.set("cursors", "true");
    this.source = new EventSource(address);
    for (const name of EVENTS) {
      this.source.addEventListener(name, (event) => this.take(name, event));
    }
    this.source.onerror = () => this.failed();
  }

  take(name, event) {
    const data = JSON.parse(event.data);
    const key = `${data.type}/${data.id}`;
    if (name === "reset") {
      this.objects.clear();
    } else if (name === "delete" || name === "leave") {
      this.objects.delete(key);
    } else if (name !== "live") {
      this.objects.set(key, data);
    }
    this.cursor = event.lastEventId || this.cursor;
    this.log = [...this.log.slice(-999), name];
    this.changed(name);
  }

  // After any answer but a stream (a proxy's 502, say), and in Firefox after a refused connection,
  // EventSource gives up. It hides the status, so `fetch` asks whether another attempt helps.
  async failed() {
    this.changed("reconnecting");
    if (this.source.readyState !== EventSource.CLOSED) return;
    const headers = { accept: "text/event-stream" };
    const abort = new AbortController();
    const answer = await fetch(this.source.url, { headers, signal: abort.signal }).catch(() => null);
    abort.abort();
    const status = answer?.status ?? 0;
    if (status >= 400 && status < 500 && ![408, 425, 429].includes(status)) {
      this.changed(`refused with ${status}`);
    } else {
      setTimeout(() => this.open(), 1000 + 1000 * Math.random());
    }
  }
}
