/* The transport over Server-Sent Events, read with `fetch`, which can send a password (PROTOCOL 7). */

import { credentials, feedUrl, listsOf, listText, switchesOf } from "./addresses.js";
import { NOW, placeOf } from "./cursors.js";
import { errorOfAnswer, Lost, Refused } from "./errors.js";
import { parse } from "./numbers.js";
import { reasonOf, send } from "./requests.js";

const SILENCE_MS = 60000; // a server sends something at least every 25 s (7.3)
const LINE_CHARS_MAX = 1048576; // a feed never sends a longer line: an operation has 64 KB
const EVENT_STREAM = "text/event-stream";

/* Return a transport to the feed at *url* for `{feed, types, parents, ids, leave, erasures, password}`. */
export function overStream(url, wanted) {
  return (cursor, hooks) => new StreamConnection(url, wanted, cursor, hooks);
}

class StreamConnection {
  #hooks;
  #abort = new AbortController();
  #silence;

  constructor(url, wanted, cursor, hooks) {
    this.#hooks = hooks;
    this.#read(url, wanted, cursor).catch((error) => {
      if (error instanceof Refused) hooks.refused(error);
      else hooks.lost(error instanceof Lost ? error : new Lost(reasonOf(error)));
    });
  }

  close() {
    clearTimeout(this.#silence);
    this.#abort.abort();
  }

  async #read(url, wanted, cursor) {
    this.#expect();
    const query = { cursors: "true" }; // older servers ignore this parameter
    for (const [name, values] of listsOf(wanted)) query[name] = listText(values);
    for (const name of switchesOf(wanted)) query[name] = "true";
    const answer = await send(feedUrl(url, wanted.feed || "main", "ops", query), {
      headers: { accept: EVENT_STREAM, "last-event-id": cursor, ...(await credentials(wanted)) },
      signal: this.#abort.signal,
    }, wanted);
    if (!answer.ok) throw await errorOfAnswer(answer);
    const kind = answer.headers.get("content-type") ?? "";
    if (!kind.startsWith(EVENT_STREAM)) {
      throw new Refused(`the answer is ${kind || "without a type"}, not an event stream`);
    }
    // A stream of the log does not say when it has caught up; one of a copy does.
    this.#hooks.state(placeOf(cursor) || cursor === NOW ? "live" : "catching-up");
    const start = answer.headers.get("last-event-id");
    const isAtEnd = ["", NOW].includes(cursor);
    if (isAtEnd && start) this.#hooks.events([], start);
    await this.#receive(answer.body.getReader(), isAtEnd);
  }

  /* The `live` with which a stream from the end of the log begins is only a position (7.4). */
  async #receive(body, isAtEnd) {
    const decoder = new TextDecoder();
    const parser = new Parser();
    for (;;) {
      const { done, value } = await body.read();
      if (done) throw new Lost("the server ended the stream", { isPlanned: true });
      this.#expect();
      let events = [];
      for (const item of parser.feed(decoder.decode(value, { stream: true }))) {
        const isStart = isAtEnd && item.event === "live";
        isAtEnd = false;
        if (item.event && !isStart) events.push(item);
        else {
          this.#hooks.events(events, item.id);
          events = [];
        }
        if (item.event === "live") this.#hooks.state("live");
      }
      if (events.length) this.#hooks.events(events);
    }
  }

  #expect() {
    clearTimeout(this.#silence);
    const reason = `nothing was received for ${SILENCE_MS / 1000} s`;
    if (!this.#abort.signal.aborted) {
      this.#silence = setTimeout(() => this.#hooks.lost(new Lost(reason)), SILENCE_MS);
    }
  }
}

/* Turns text of any size into events; a block with only an id is `{id}`: it moves the cursor. */
export class Parser {
  #rest = "";
  #lastId = "";
  #id = null;
  #name = "";
  #data = [];
  #traceparent = "";

  *feed(text) {
    for (const line of this.#lines(text)) {
      if (line) this.#field(line);
      else yield* this.#block();
    }
  }

  #lines(text) {
    const all = this.#rest + text;
    const held = all.endsWith("\r") ? "\r" : ""; // the LF of a CRLF may come with the next chunk
    const lines = (held ? all.slice(0, -1) : all).split(/\r\n|\n|\r/);
    this.#rest = lines.pop() + held;
    if (this.#rest.length > LINE_CHARS_MAX) throw new Lost("a line of the stream does not end");
    return lines;
  }

  #field(line) {
    const [, name, value] = /^([^:]*)(?:: ?(.*))?$/s.exec(line);
    if (name === "data") this.#data.push(value ?? "");
    else if (name === "event") this.#name = value ?? "";
    else if (name === "traceparent") this.#traceparent = value ?? "";
    else if (name === "id" && !value?.includes("\0")) this.#id = value ?? "";
  }

  *#block() {
    const [id, event, data, traceparent] = [this.#id, this.#name, this.#data, this.#traceparent];
    [this.#id, this.#name, this.#data, this.#traceparent] = [null, "", [], ""];
    if (id !== null) this.#lastId = id;
    if (data.length) {
      const found = { id: this.#lastId, event: event || "message", data: parsed(data.join("\n")) };
      yield traceparent ? { ...found, traceparent } : found;
    } else if (id) yield { id };
  }
}

function parsed(text) {
  try {
    return parse(text);
  } catch {
    throw new Lost("the data of an event is not JSON");
  }
}
