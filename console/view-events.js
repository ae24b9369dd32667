// The events as they arrive: joins the feed, the fold, the list and the charts.

import { address, isSignedIn, secret, transport } from "./api.js";
import { glow, GLOW_MS, sparkline, treemap } from "./charts.js";
import { Reader } from "./client/reader.js";
import { Fold, OBJECTS_MAX, Tally } from "./fold.js";
import { inspect } from "./inspector.js";
import { EventList } from "./list.js";
import { button, element, h, plain } from "./page.js";
import { seek } from "./seek.js";

export const title = "Events";

const DRAW_EVERY_MS = 80; // smooth to look at, and light on a busy feed
const RATE_SECONDS = 120; // how far back the sparkline goes
const GROUPS_MAX = 80; // smaller areas could not be told apart
const TABLE_ROWS_MAX = 40;
const TYPES_SHOWN = 8;
const STORE = "tidings-console";
const DISCONNECTED_MS = 5000; // long enough to see the feed continue without this page

const calm = matchMedia("(prefers-reduced-motion: reduce)");
const dark = matchMedia("(prefers-color-scheme: dark)");

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

let live = null; // what was shown last; it resumes when this view is shown again

export function mount(root, context) {
  const key = JSON.stringify([context.feed, context.params.toString()]);
  if (live?.key !== key || live.isStale || live.isOver()) live = new Live(key, context.feed);
  live.mount(root, context);
}

export function unmount() {
  live.unmount();
}

export function forget() {
  if (live) live.isStale = true;
}

// A list with commas between its values, or a JSON array if a value contains one.
function valuesOf(text) {
  try {
    if (text.startsWith("[")) return JSON.parse(text).map(String);
  } catch {
    // not an array: a value may begin with a bracket
  }
  return text.split(",").map((value) => value.trim()).filter(Boolean);
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
    this.tally = new Tally();
    this.heat = new Map(); // group name -> {kind, until}
    this.perSecond = new Array(RATE_SECONDS).fill(0);
    this.areas = [];
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
    this.onScheme = () => (this.isChanged = true);
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
    const choice = { feed, password: secret };
    for (const name of ["types", "parents"]) choice[name] = valuesOf(this.$(name).value.trim());
    this.reader = new Reader(transport(choice), this.cursor || from, hooks(this));
    context.onReached((isSilent) => (isSilent || this.state === "waiting") && this.reader.start());
    dark.addEventListener("change", this.onScheme);
    this.sizes = new ResizeObserver(this.onScheme);
    this.sizes.observe(this.$("map"));
    this.ticking = setInterval(() => this.tick(), 1000);
    const draw = (now) => {
      this.frame = requestAnimationFrame(draw);
      this.draw(now);
    };
    draw(0);
    this.reader.start();
  }

  unmount() {
    this.reader.stop();
    clearInterval(this.ticking);
    cancelAnimationFrame(this.frame);
    this.sizes.disconnect();
    dark.removeEventListener("change", this.onScheme);
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
    const group = this.fold.apply(event);
    if (group) this.heat.set(group, { kind: event.event, until: performance.now() + GLOW_MS });
    if (event.event === "reset") this.heat.clear();
    this.tally.count(event);
    this.list.add(event);
    if (this.isPaused) this.held += 1;
  }

  // --- what is shown ---------------------------------------------------------------------------

  draw(now) {
    if (now - this.drawn < DRAW_EVERY_MS || (!this.isChanged && !this.heat.size)) return;
    this.drawn = now;
    this.areas = treemap(this.$("map"), this.fold.largest(GROUPS_MAX), (name) => this.warmth(name, now));
    if (!this.isChanged) return;
    this.isChanged = false;
    if (!this.isPaused) this.list.show();
    this.showFigures();
    this.showTypes();
    if (this.$("groups").closest("details").open) this.showGroups();
    this.$("pause").textContent = this.isPaused ? `Continue (${this.held.toLocaleString()} new)` : "Pause";
  }

  warmth(name, now) {
    const warm = this.heat.get(name);
    if (!warm) return null;
    const share = glow(warm.until - now, calm.matches);
    if (!share) this.heat.delete(name);
    return share ? { kind: warm.kind, share } : null;
  }

  tick() {
    this.perSecond.push(0);
    this.perSecond.shift();
    sparkline(this.$("spark"), this.perSecond.slice(0, -1));
    this.$("rate").textContent = this.perSecond[this.perSecond.length - 2].toLocaleString();
  }

  showFigures() {
    const { fold } = this;
    this.$("total").textContent = this.tally.total.toLocaleString();
    this.$("objects").textContent = fold.objects.size.toLocaleString() + (fold.isFull ? "+" : "");
    const heading = this.$("objects-title");
    heading.textContent = fold.isWhole ? "Objects" : "Objects seen";
    if (fold.isFull) heading.title = `counted up to ${OBJECTS_MAX.toLocaleString()}`;
    else heading.title = fold.isWhole ? "all objects" : "since this page was loaded";
    this.$("empty").hidden = this.list.size > 0;
  }

  showTypes() {
    const busiest = this.tally.busiest(TYPES_SHOWN);
    const most = Math.max(1, ...busiest.map((type) => type.sum));
    this.$("bars").replaceChildren(...busiest.map((type) => bar(type, most)));
  }

  showGroups() {
    const rows = this.fold.largest(TABLE_ROWS_MAX).map((group) => {
      const opens = button(`${group.type} ${group.folder}`, () => this.open(group.name), undefined, "plain");
      opens.disabled = !group.folder.endsWith("/");
      return h("tr", {}, h("td", {}, opens), h("td", { class: "number" }, group.count.toLocaleString()));
    });
    this.$("groups").replaceChildren(...rows);
  }

  showCrumbs() {
    const crumb = (text, focus) => button(text, () => this.look(focus), undefined, "plain");
    const crumbs = [];
    if (this.fold.focus) {
      const { type, prefix } = this.fold.focus;
      crumbs.push(crumb("everything", null), crumb(type, { type, prefix: "" }));
      let at = prefix.indexOf("/", 1);
      for (let from = 0; at >= 0; from = at + 1, at = prefix.indexOf("/", from)) {
        crumbs.push(crumb(prefix.slice(from, at + 1), { type, prefix: prefix.slice(0, at + 1) }));
      }
    }
    this.$("crumbs").replaceChildren(...crumbs);
  }

  // --- what a person does ----------------------------------------------------------------------

  look(focus) {
    this.fold.look(focus);
    this.heat.clear();
    this.isChanged = true;
    this.showCrumbs();
  }

  open(group) {
    const found = this.fold.groups.get(group);
    if (!found || !found.folder.endsWith("/")) return;
    this.look({ type: found.type, prefix: (this.fold.focus?.prefix ?? "") + found.folder });
  }

  areaAt({ offsetX: x, offsetY: y }) {
    return this.areas.find((box) => x >= box.x && x < box.x + box.width && y >= box.y && y < box.y + box.height);
  }

  point(event) {
    const item = this.areaAt(event)?.item;
    this.$("map").title = item ? plain(`${item.type} ${item.folder}: ${item.count.toLocaleString()}`) : "";
    this.$("map").style.cursor = item?.folder.endsWith("/") ? "pointer" : "default";
  }

  pause() {
    this.isPaused = !this.isPaused;
    this.held = 0;
    this.$("pause").setAttribute("aria-pressed", String(this.isPaused));
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
      field("types", "Types", "all, or a,b"),
      field("parents", "Parents", "all, or x,y"),
      live.seek.element,
      h("button", { type: "submit" }, "Follow"),
      h("span", { class: "buttons" },
        h("button", { id: "pause", type: "button", "aria-pressed": "false", title: "Do not move the list", onclick: () => live.pause() }, "Pause"),
        h("button", { id: "plug", class: "main", type: "button", title: "Disconnect, and see that nothing is lost", onclick: () => live.plug() }, "Disconnect"))),
    h("section", { class: "figures", "aria-label": "Counters" },
      h("div", { class: "figure wide" }, h("h2", {}, "Events a second"), h("output", { id: "rate" }, "0"),
        h("canvas", { id: "spark", role: "img", "aria-label": "Events a second over the last two minutes" })),
      count("total", "Events"), count("objects", "Objects")),
    h("section", { class: "picture", "aria-labelledby": "picture-title" },
      h("h2", { id: "picture-title" }, "Objects by type and folder"),
      h("nav", { id: "crumbs", class: "crumbs", "aria-label": "Folder shown" }),
      h("canvas", {
        id: "map", role: "img", "aria-label": "One area for each folder, as large as it has objects; the table below has the same content",
        onclick: (event) => live.open(live.areaAt(event)?.item.name), onmousemove: (event) => live.point(event),
      }),
      h("details", { ontoggle: () => (live.isChanged = true) }, h("summary", {}, "As a table"),
        h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Type and folder"), h("th", { scope: "col" }, "Objects"))),
          h("tbody", { id: "groups" }))),
      h("h2", {}, "By type"),
      h("ul", { class: "legend soft" }, ["insert", "update", "delete"].map((kind) =>
        h("li", {}, h("span", { class: `swatch ${kind}` }), ` ${kind}`))),
      h("div", { id: "bars", class: "bars" })),
    h("section", { class: "stream", "aria-labelledby": "stream-title" },
      h("h2", { id: "stream-title" }, "Newest first"),
      h("p", { class: "cursor" }, "Cursor: ", h("code", { id: "cursor", title: "The position from which this page resumes" }, "none yet")),
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

function bar(type, most) {
  const track = element("div", "track");
  for (const kind of ["insert", "update", "delete"]) {
    const part = element("span", kind);
    part.style.width = `${(type[kind] / most) * 100}%`;
    part.title = `${type[kind].toLocaleString()} ${kind}`;
    track.append(part);
  }
  return h("div", { class: "bar" },
    element("span", "name", plain(type.type)), track, element("span", "count", type.sum.toLocaleString()));
}
