// The events as they arrive, with their data: joins the feed, the list and the counters.

import { address, isSignedIn, secret, transport } from "./api.js";
import { sparkline } from "./charts.js";
import { Reader } from "./client/reader.js";
import { Fold, OBJECTS_MAX } from "./fold.js";
import { inspect } from "./inspector.js";
import { EventList } from "./list.js";
import { button, everyFrame, h, number, plain } from "./page.js";
import { listText, valuesOf } from "./requests.js";
import { seek } from "./seek.js";
import { openPost } from "./view-post.js";

export const title = "Events";

const DRAW_EVERY_MS = 80; // smooth to look at, and light on a busy feed
const RATE_SECONDS = 120; // how far back the sparkline goes
const TYPES_MAX = 100; // of a list; others can be typed
const STORE = "tidings-console";
const DISCONNECTED_MS = 5000; // long enough to see the feed continue without this page

const BADGES = {
  connecting: "connecting",
  "catching-up": "catching up",
  live: "live",
  waiting: "reconnecting",
  paused: "disconnected",
  refused: "refused",
  deleted: "deleted",
};

const SIGN_IN = ["wrong_password", "wrong_key", "no_password_set", "key_ended"];

const seen = new Map(); // feed -> types of its events
let live = null; // what was shown last; it resumes when this view is shown again

export function mount(root, context) {
  const key = JSON.stringify([context.feed, context.params.toString()]);
  if (live?.key !== key || live.isStale || live.isOver()) live = new Live(key, context.feed);
  live.mount(root, context);
  if (context.opens === "post") openPost(root, context);
}

export function unmount() {
  live.unmount();
}

export function forget() {
  if (live) live.isStale = true;
  seen.clear();
}

// The cursor outlives a reload of the page, not the tab: two tabs are two consumers.
function keep(key, cursor) {
  try {
    sessionStorage.setItem(STORE, JSON.stringify({ key, cursor }));
  } catch {
    // A browser that keeps nothing still shows the feed.
  }
}

function keptCursor(key) {
  try {
    const kept = JSON.parse(sessionStorage.getItem(STORE));
    return kept?.key === key && typeof kept.cursor === "string" ? kept.cursor : "";
  } catch {
    return "";
  }
}

class Live {
  constructor(key, feed) {
    this.key = key;
    this.feed = feed;
    this.fold = new Fold();
    this.total = 0;
    this.perSecond = new Array(RATE_SECONDS).fill(0);
    this.isPaused = false;
    this.held = 0; // events that arrived during a pause
    this.drawn = 0;
    this.isChanged = true;
    this.state = "connecting";
    this.isStale = false;
    this.cursor = keptCursor(key);
    this.seek = seek();
    this.parts = content(this);
    this.list = new EventList(this.$("events"), (event) => inspect(event, this.context));
  }

  $(id) {
    return this.parts.querySelector(`#${id}`);
  }

  mount(root, context) {
    this.context = context;
    root.append(this.parts);
    const { feed, params } = context;
    for (const name of ["types", "parents"]) this.$(name).value = params.get(name) ?? "";
    const from = params.get("from") || "0";
    this.seek.set(from);
    this.showChoice();
    const choice = { feed, password: secret };
    for (const name of ["types", "parents"]) choice[name] = valuesOf(this.$(name).value.trim());
    this.reader = new Reader(transport(choice), this.cursor || from, hooks(this));
    context.onReached((isSilent) => (isSilent || this.state === "waiting") && this.reader.start());
    this.ticking = setInterval(() => this.tick(), 1000);
    this.stopDrawing = everyFrame((now) => this.draw(now));
    this.reader.start();
  }

  unmount() {
    this.reader.stop();
    clearInterval(this.ticking);
    this.stopDrawing();
    this.parts.remove();
  }

  isOver() {
    return this.state === "refused" || this.state === "deleted";
  }

  enter(name, ms = 0, why = "") {
    this.state = name;
    this.isChanged = true;
    const counts = name === "waiting" || name === "paused";
    this.context.stream(name, why ? `${BADGES[name]}: ${why}` : BADGES[name], counts ? Date.now() + ms : 0);
    this.$("plug").textContent = counts ? "Connect" : "Disconnect";
    this.$("plug").disabled = this.isOver();
  }

  take(event) {
    this.fold.apply(event);
    if (event.event !== "reset" && event.event !== "live") {
      this.total += 1;
      const types = seen.get(this.feed) ?? seen.set(this.feed, new Set()).get(this.feed);
      if (types.size < TYPES_MAX) types.add(String(event.data.type));
    }
    this.list.add(event);
    if (this.isPaused) this.held += 1;
  }

  // --- what is shown ---------------------------------------------------------------------------

  draw(now) {
    if (now - this.drawn < DRAW_EVERY_MS || !this.isChanged) return;
    this.drawn = now;
    this.isChanged = false;
    if (!this.isPaused) this.list.show();
    this.showFigures();
    this.$("pause").textContent = this.isPaused ? `Continue (${this.held.toLocaleString()} new)` : "Pause";
  }

  tick() {
    this.perSecond.push(0);
    this.perSecond.shift();
    sparkline(this.$("spark"), this.perSecond.slice(0, -1));
    this.$("rate").textContent = this.perSecond[this.perSecond.length - 2].toLocaleString();
  }

  showFigures() {
    const { fold } = this;
    this.$("total").textContent = number(this.total);
    this.$("objects").textContent = fold.objects.size.toLocaleString() + (fold.isFull ? "+" : "");
    const heading = this.$("objects-title");
    heading.textContent = fold.isWhole ? "Objects" : "Objects seen";
    if (fold.isFull) heading.title = `counted up to ${OBJECTS_MAX.toLocaleString()}`;
    else heading.title = fold.isWhole ? "all objects" : "since this page was loaded";
    const { wanted, found, kept } = this.list;
    this.$("found").textContent = wanted ? `${number(found)} of the newest ${number(kept)}` : "";
    this.$("empty").hidden = this.list.size > 0 || wanted !== "";
  }

  // The types that were seen, to choose from; others are typed.
  showChoice() {
    const chosen = valuesOf(this.$("types").value);
    this.$("types-chosen").textContent = plain(`Types: ${chosen.join(", ") || "all"}`);
    const types = [...new Set([...chosen, ...(seen.get(this.feed) ?? [])])].sort();
    this.$("types-list").replaceChildren(...types.map((type) => h("label", { class: "check" },
      h("input", { type: "checkbox", checked: chosen.includes(type), onchange: () => this.choose(type) }), plain(type))));
  }

  // --- what a person does ----------------------------------------------------------------------

  choose(type) {
    const chosen = new Set(valuesOf(this.$("types").value));
    if (!chosen.delete(type)) chosen.add(type);
    this.$("types").value = listText([...chosen]);
  }

  pause() {
    this.isPaused = !this.isPaused;
    this.held = 0;
    this.$("pause").setAttribute("aria-pressed", String(this.isPaused));
    this.isChanged = true;
  }

  search(text) {
    this.list.search(text);
    this.isChanged = true;
  }

  plug() {
    if (this.isOver()) return;
    if (this.state === "waiting" || this.state === "paused") this.reader.start();
    else {
      this.context.say("Disconnected. The feed continues; this page will resume from its cursor.");
      this.reader.pause(DISCONNECTED_MS);
    }
  }

  follow(event) {
    event.preventDefault();
    if (!this.seek.check()) return;
    this.isStale = true; // the same filters begin again, too
    keep(this.key, "");
    const [types, parents] = ["types", "parents"].map((name) => this.$(name).value.trim());
    this.context.setParams({ types, parents, from: this.seek.value() });
  }
}

// What the reader calls.
function hooks(live) {
  return {
    state: (name, ms = 0, why = "") => live.enter(name, ms, name === "waiting" ? why : ""),
    cursor: (text) => {
      live.cursor = text;
      live.$("cursor").textContent = plain(text);
      keep(live.key, text);
    },
    events: (events) => {
      live.isChanged = true;
      live.context.heard();
      live.perSecond[live.perSecond.length - 1] += events.length;
      for (const event of events) live.take(event);
    },
    resumed: ({ cursor, missed }) => {
      const counted = `${missed.toLocaleString()} event${missed === 1 ? "" : "s"} missed and caught up`;
      live.context.say(`resumed from cursor ${cursor}, ${counted}`);
      live.list.add({ id: "", event: "note", data: { text: `resumed: ${counted}` } });
      live.isChanged = true;
    },
    refused: ({ message, code }) => {
      if (code === "feed_deleted") {
        live.enter("deleted");
        return;
      }
      const isToSignIn = SIGN_IN.includes(code);
      if (isToSignIn) live.context.signIn({ code, message });
      if (isToSignIn && !isSignedIn()) live.context.stream("paused", "not signed in");
      else live.context.trouble(`The server refuses: ${message}`);
    },
  };
}

// The elements; they are kept while another view is shown.
function content(live) {
  const field = (name, label, placeholder) => h("label", {}, `${label} `,
    h("input", { id: name, name, placeholder, spellcheck: "false" }));
  const count = (id, heading) => h("div", { class: "figure" }, h("h2", { id: `${id}-title` }, heading), h("output", { id }, "0"));
  return h("div", { class: "live" },
    h("form", { id: "filters", class: "filters", autocomplete: "off", novalidate: true, onsubmit: (event) => live.follow(event) },
      h("details", { class: "menu", ontoggle: () => live.showChoice() }, h("summary", { id: "types-chosen" }, "Types: all"),
        h("div", {}, h("div", { id: "types-list", role: "group", "aria-label": "Types that were seen" }), field("types", "As text", "all, or a,b"))),
      field("parents", "Parents", "all, or x,y"),
      live.seek.element,
      h("button", { type: "submit" }, "Follow"),
      h("span", { class: "buttons" },
        button("Post event", () => openPost(live.parts.parentElement, live.context)),
        h("button", { id: "pause", type: "button", "aria-pressed": "false", title: "Do not move the list", onclick: () => live.pause() }, "Pause"),
        h("button", { id: "plug", class: "main", type: "button", title: "Disconnect, and see that nothing is lost", onclick: () => live.plug() }, "Disconnect"))),
    h("section", { class: "figures", "aria-label": "Counters" },
      count("total", "Events"), count("objects", "Objects"),
      h("div", { class: "figure wide" }, h("h2", {}, "Events a second"), h("output", { id: "rate" }, "0"),
        h("canvas", { id: "spark", role: "img", "aria-label": "Events a second over the last two minutes" }))),
    h("section", { class: "stream", "aria-labelledby": "stream-title" },
      h("div", { class: "filters" }, h("h2", { id: "stream-title" }, "Newest first"),
        h("label", {}, "Search ", h("input", { id: "search-text", type: "search", placeholder: "in ids and data", oninput: ({ target }) => live.search(target.value) })),
        h("output", { id: "found", class: "soft" }),
        h("p", { class: "cursor" }, "Cursor: ", h("code", { id: "cursor", title: "The position from which this page resumes" }, "none yet"))),
      h("div", { id: "empty", class: "empty" }, h("p", {}, "No event yet. Post one:"), h("pre", { id: "how", tabindex: "0" }, howToPost(live))),
      h("ol", { id: "events", class: "events", "aria-label": "Events, newest first; Enter opens an event, the arrow keys move" })));
}

function howToPost({ feed }) {
  return [
    `tidings post insert video x32 --url ${address("/")}${feed === "main" ? "" : ` --feed ${feed}`}`,
    "",
    `curl -H 'Content-Type: application/json' ${address(`/feeds/${encodeURIComponent(feed)}/ops`)} \\`,
    `  -d '{"event":"insert","type":"video","id":"x32"}'`,
  ].join("\n");
}
