// One feed over a WebSocket: connects, resumes from the last cursor, and says what it sees.
//
// Knows the protocol (docs/PROTOCOL.md, sections 6 and 8) and nothing of the page.

const DELAY_MS_MIN = 1000;
const DELAY_MS_MAX = 32000; // a longer wait would be felt after an outage
const KEEP_ALIVE_MS = 540000; // idle connections are cut after ten minutes (8.7)
const SILENT_MS = 3600000; // behind it: ask whether the server still knows us (8.7)
const PONG_WITHIN_MS = 10000; // 8.7
const SUBSCRIBED_WITHIN_MS = 30000; // a function that starts cold needs longer than a pong
const CAUGHT_UP_PING_MS = 300; // while catching up: ask this often whether it is done
const SETTLE_MS = 500; // what was on its way at the hand-over still counts as missed
const UNPLUGGED_MS = 5000; // long enough to see the feed go on without us
const UNPACKED_BYTES_MAX = 131072; // what the server packs into one message at most (8.9)

const REPLICATION_SLOT = 0x800000; // slots from here up are rows of a copy (5.2)

// Page and slot of an event id of the log; null for a row of a copy or anything else.
export function placeOf(id) {
  if (!/^[0-9a-f]{24}$/i.test(id)) return null;
  const page = parseInt(id.slice(8, 18), 16);
  const slot = parseInt(id.slice(18), 16);
  return slot < REPLICATION_SLOT ? { page, slot } : null;
}

const isAfter = (place, last) =>
  place.page > last.page || (place.page === last.page && place.slot > last.slot);

// Page, then copies before the end of the page that the log goes on behind, then the bucket of a
// copy (5.2) or the slot; null for no place.
function rankOf(id) {
  if (!/^[0-9a-f]{24}$/i.test(id)) return null;
  const slot = parseInt(id.slice(18), 16);
  const page = parseInt(id.slice(8, 18), 16);
  return slot < REPLICATION_SLOT ? [page, 1, slot] : [page, 0, slot & 0x7f];
}

// What a connection has told so far: nothing that comes late leads back (8.8).
export class Ascent {
  #last = [0, 0, -1];

  // Rows of a bucket may come again, so they count as one place; an operation may not.
  rises(event, cursor) {
    // The cursor is behind the rows that come with a reset, so it is looked at alone.
    if (event.event === "reset") return this.#isAt(rankOf(cursor), true);
    return this.#risesTo(event.id, event.event !== "live" && placeOf(event.id) !== null);
  }

  moves(cursor) {
    return this.#risesTo(cursor, false);
  }

  #risesTo(id, above) {
    const rank = rankOf(id);
    if (!this.#isAt(rank, above)) return false;
    this.#last = rank ?? this.#last;
    return true;
  }

  // Of null, which is no place, nothing can be said.
  #isAt(rank, above) {
    if (rank === null) return true;
    const at = rank.findIndex((part, index) => part !== this.#last[index]);
    return at < 0 ? !above : rank[at] > this.#last[at];
  }
}

// What was handled last, to know a repeated operation (6.4). A copy starts anew (5.6).
export class Handled {
  constructor(cursor = "") {
    this.last = placeOf(cursor);
  }

  repeats(event) {
    const place = Handled.#place(event);
    return place !== null && this.last !== null && !isAfter(place, this.last);
  }

  note(event) {
    this.last = Handled.#place(event);
  }

  noteMoved(cursor) {
    this.last = placeOf(cursor);
  }

  static #place(event) {
    return event.event === "reset" || event.event === "live" ? null : placeOf(event.id);
  }
}

// The JSON of a message, which may be packed (8.9): base64 never begins with a brace.
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

// Milliseconds before attempt *attempt* (from 0): doubling, half of it by chance.
export function delayMs(attempt, chance = Math.random()) {
  const full = Math.min(DELAY_MS_MIN * 2 ** Math.min(attempt, 8), DELAY_MS_MAX);
  return full * (0.5 + 0.5 * chance);
}

// Follows `{feed, types, parents, from}` from *cursor* (or `from`) until `stop()`.
//
// *tell* hears: state(name, detail), events(list), cursor(text), resumed({cursor, missed}),
// refused(message, code). *password* gives the feed's, or "". States: connecting, catching-up, live, waiting, unplugged, refused.
export class Feed {
  #url;
  #choice;
  #tell;
  #password;
  #socket = null;
  #timers = new Map();
  #attempt = 0;
  #handled;
  #ascent = new Ascent();
  #resuming = null;
  #moved = false;
  #keepAlive = "keepalive";
  #reading = Promise.resolve();
  #stopped = false;

  constructor(url, choice, cursor, tell, password = () => "") {
    this.#url = url;
    this.#password = password;
    this.#choice = choice;
    this.#tell = tell;
    this.cursor = cursor || choice.from;
    this.#handled = new Handled(this.cursor);
  }

  start() {
    this.#connect();
  }

  stop() {
    this.#stopped = true;
    this.#drop();
  }

  // Drop the connection as if the network had gone, and come back after a while.
  unplug() {
    this.#drop();
    this.#tell.state("unplugged", UNPLUGGED_MS);
    this.#after("reconnect", UNPLUGGED_MS, () => this.#connect());
  }

  plugIn() {
    this.#connect();
  }

  #connect() {
    this.#drop();
    if (this.#stopped) return;
    this.#tell.state("connecting");
    this.#moved = !["", "now"].includes(this.cursor); // only the end has no cursor of its own yet
    this.#ascent = new Ascent();
    const socket = new WebSocket(this.#url);
    this.#socket = socket;
    this.#after("answer", SUBSCRIBED_WITHIN_MS, () => this.#lost("no answer"));
    const mine = (act) => (what) => {
      if (this.#socket === socket) act(what); // a dropped socket may still have something to say
    };
    socket.onopen = mine(() => this.#subscribe());
    const receive = mine((text) => this.#receive(text));
    const unread = mine(() => this.#lost("not a message"));
    socket.onmessage = ({ data }) => {
      // Unpacking takes a moment; what came behind waits for it.
      this.#reading = this.#reading.then(() => textOf(data)).then(receive, unread).catch(reportError);
    };
    socket.onclose = mine(() => this.#lost("connection lost"));
  }

  #drop() {
    for (const timer of this.#timers.values()) clearTimeout(timer);
    this.#timers.clear();
    const socket = this.#socket;
    this.#socket = null;
    if (socket) socket.close();
  }

  #lost(why) {
    this.#drop();
    if (this.#stopped) return;
    const wait = delayMs(this.#attempt);
    this.#attempt += 1;
    this.#tell.state("waiting", wait, why);
    this.#after("reconnect", wait, () => this.#connect());
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
    this.#socket.send(JSON.stringify(message));
    this.#stays();
  }

  // Whatever either side says keeps the connection open.
  #stays() {
    this.#after("keep-alive", KEEP_ALIVE_MS, () => this.#send({ action: this.#keepAlive }));
  }

  #heard() {
    this.#stays();
    this.#after("silent", SILENT_MS, () => this.#ping());
  }

  #subscribe() {
    const { feed, types, parents } = this.#choice;
    const message = { action: "subscribe", feed, from: this.cursor };
    if (placeOf(this.cursor)) {
      delete message.from;
      Object.assign(message, { action: "resume", cursor: this.cursor });
      this.#resuming = { cursor: this.cursor, missed: 0, second: Math.floor(Date.now() / 1000) };
    } else {
      this.#resuming = null;
    }
    if (types.length) message.types = types;
    if (parents.length) message.parents = parents;
    if (typeof DecompressionStream === "function") message.encoding = "gzip";
    if (this.#password()) message.password = this.#password();
    this.#send(message);
  }

  #receive(text) {
    let message;
    try {
      message = JSON.parse(text);
    } catch {
      return this.#lost("not JSON");
    }
    this.#heard();
    if (message.error?.field === "action" && message.error.value === "keepalive") {
      this.#keepAlive = "ping"; // a server of a release that knows no keep-alive
      return undefined;
    }
    if (message.error) return this.#refused(message.error);
    if (message.reply === "subscribed") return this.#subscribed(message);
    if (message.reply === "pong") return this.#pong(message.state);
    if (Array.isArray(message.events)) return this.#events(message);
    if (message.requestId) return this.#lost(String(message.message)); // the gateway's own words
    return undefined;
  }

  #refused(error) {
    if (error.code === "unavailable" || error.code === "too_many_requests") {
      return this.#lost(error.code);
    }
    this.stop();
    this.#tell.state(error.code === "feed_deleted" ? "deleted" : "refused");
    return this.#tell.refused(String(error.message ?? "refused"), String(error.code ?? ""));
  }

  #subscribed(message) {
    this.#tell.state("catching-up");
    if (!this.#moved && message.cursor) this.#move(message.cursor);
    this.#ping();
  }

  #ping() {
    this.#clear("ping");
    this.#send({ action: "ping" });
    this.#after("answer", PONG_WITHIN_MS, () => this.#lost("no pong"));
  }

  #pong(state) {
    this.#clear("answer");
    if (state === "live") {
      this.#tell.state("live");
      if (this.#resuming) this.#after("settle", SETTLE_MS, () => this.#caughtUp());
    } else if (state === "catching-up" || state === "joining") {
      this.#after("ping", CAUGHT_UP_PING_MS, () => this.#ping());
    } else {
      this.#lost(`the server says ${state}`);
    }
  }

  #caughtUp() {
    const { cursor, missed } = this.#resuming;
    this.#resuming = null;
    this.#tell.resumed({ cursor, missed });
  }

  #events(message) {
    this.#moved = true;
    const fresh = [];
    for (const raw of message.events) {
      const event = { id: String(raw.id ?? ""), event: String(raw.event ?? ""), data: raw.data ?? {} };
      if (!this.#ascent.rises(event, String(message.cursor ?? ""))) continue;
      if (this.#handled.repeats(event)) continue;
      this.#handled.note(event);
      fresh.push(event);
      this.#count(event);
    }
    if (fresh.length) {
      this.#attempt = 0; // an event shows that the server is well; a bare connection does not
      this.cursor = fresh[fresh.length - 1].id || this.cursor;
      this.#tell.events(fresh);
    }
    if (message.cursor && this.#ascent.moves(String(message.cursor))) this.#move(message.cursor);
    else this.#tell.cursor(this.cursor);
  }

  // Missed is what was committed before we came back; the second is in the id (5.1).
  #count(event) {
    if (this.#resuming && parseInt(event.id.slice(0, 8), 16) <= this.#resuming.second) {
      this.#resuming.missed += 1;
    }
  }

  #move(cursor) {
    this.cursor = String(cursor);
    this.#handled.noteMoved(this.cursor);
    this.#tell.cursor(this.cursor);
  }
}
