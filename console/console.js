// The page: joins the feed, the fold, the list and the charts. Everything it shows is text.

import { offerFeeds } from "./api.js";
import { colour, sparkline, treemap } from "./charts.js";
import { Reader } from "./client/reader.js";
import { overSocket } from "./client/socket.js";
import { Fold, OBJECTS_MAX, Tally } from "./fold.js";
import { element, EventList, plain } from "./list.js";
import { ask } from "./status.js";

const DRAW_EVERY_MS = 80; // smooth to look at, and light on a busy feed
const RATE_SECONDS = 120; // how far back the sparkline goes
const HEAT_MS = 1500; // how long a changed area glows
const GROUPS_MAX = 80; // smaller areas could not be told apart
const TABLE_ROWS_MAX = 40;
const TYPES_SHOWN = 8;
const STORE = "tidings-console";
const UNPLUGGED_MS = 5000; // long enough to see the feed continue without this page
const STATUS_EVERY_S = 5; // a lag that lasts is what matters, not each page

const $ = (id) => document.getElementById(id);
const list = new EventList($("events"));
const calm = matchMedia("(prefers-reduced-motion: reduce)");

let feed = null;
let fold = new Fold();
let tally = new Tally();
let heat = new Map(); // group name -> {kind, until}
let perSecond = new Array(RATE_SECONDS).fill(0);
let areas = [];
let paused = false;
let held = 0;
let drawn = 0;
let changed = true;
let ticks = 0;
let state = { name: "connecting", until: 0, why: "" };

const TOLD = {
  connecting: "connecting",
  "catching-up": "catching up",
  live: "live",
  waiting: "reconnecting",
  paused: "unplugged",
  refused: "refused",
  deleted: "deleted",
};

const hears = {
  state(name, ms = 0, why = "") {
    state = { name, until: performance.now() + ms, why };
    if (name === "waiting" || name === "paused") changed = true;
    showState();
  },
  cursor(text) {
    $("cursor").textContent = plain(text);
    keep(text);
  },
  events(events) {
    changed = true;
    perSecond[perSecond.length - 1] += events.length;
    for (const event of events) takeIn(event);
  },
  resumed({ cursor, missed }) {
    const counted = `${missed.toLocaleString()} event${missed === 1 ? "" : "s"} missed and caught up`;
    notice(`resumed from cursor ${cursor}, ${counted}`);
    list.add({ id: "", event: "note", data: { text: `resumed: ${counted}` } });
    changed = true;
  },
  refused({ message, code }) {
    if (code === "feed_deleted") hears.state("deleted");
    notice(code === "feed_deleted" ? `The feed ${plain(chosen().feed)} was deleted.` : `The server refuses: ${plain(message)}`);
    if (code === "wrong_password") $("password").focus();
  },
};

function takeIn(event) {
  const group = fold.apply(event);
  if (group) heat.set(group, { kind: event.event, until: performance.now() + HEAT_MS });
  if (event.event === "reset") heat.clear();
  tally.count(event);
  list.add(event);
  if (paused) held += 1;
}

// --- choosing what to follow -----------------------------------------------------------------

// A list with commas between its values, or a JSON array if a value contains one.
function values(id) {
  const text = $(id).value.trim();
  try {
    if (text.startsWith("[")) return JSON.parse(text).map(String);
  } catch {
    // not an array: a value may begin with a bracket
  }
  return text.split(",").map((value) => value.trim()).filter(Boolean);
}

function joined(value) {
  if (!Array.isArray(value)) return value;
  const isPlain = value.every((each) => !each.includes(",") && !each.startsWith("["));
  return isPlain ? value.join(",") : JSON.stringify(value);
}

function chosen() {
  return {
    feed: $("feed").value.trim() || "main",
    types: values("types"),
    parents: values("parents"),
    from: $("from").value,
  };
}

// Read when it is needed and kept nowhere else: not with the choice, not in the address.
function password() {
  return $("password").value;
}

function follow(choice, cursor) {
  feed?.stop();
  fold = new Fold();
  tally = new Tally();
  heat = new Map();
  perSecond = new Array(RATE_SECONDS).fill(0);
  list.clear();
  notice("");
  $("cursor").textContent = "no cursor yet";
  const scheme = location.protocol === "https:" ? "wss:" : "ws:";
  const open = overSocket(`${scheme}//${location.host}/ws`, { ...choice, password });
  feed = new Reader(open, cursor || choice.from, hears);
  keep(cursor);
  feed.start();
  changed = true;
}

// The cursor outlives a reload of the page, not the tab: two tabs are two consumers.
function keep(cursor) {
  try {
    sessionStorage.setItem(STORE, JSON.stringify({ ...chosen(), cursor }));
  } catch {
    // A browser that keeps nothing still shows the feed.
  }
}

function kept() {
  try {
    return JSON.parse(sessionStorage.getItem(STORE)) ?? {};
  } catch {
    return {};
  }
}

function begin() {
  const before = kept();
  const asked = new URLSearchParams(location.search);
  for (const name of ["feed", "types", "parents", "from"]) {
    const value = joined(before[name]) ?? asked.get(name);
    if (typeof value === "string") $(name).value = value;
  }
  if (!$("from").value) $("from").value = "0";
  follow(chosen(), typeof before.cursor === "string" ? before.cursor : "");
}

// --- what is shown ---------------------------------------------------------------------------

function notice(text) {
  $("notice").textContent = text;
  $("notice").hidden = !text;
}

function showState() {
  const left = Math.ceil((state.until - performance.now()) / 1000);
  const counts = state.name === "waiting" || state.name === "paused";
  $("badge").dataset.state = state.name;
  const why = state.why ? `${state.why}, ` : "";
  $("badge").textContent = counts ? `${why}${TOLD[state.name]} ${Math.max(0, left)} s` : TOLD[state.name];
  $("plug").textContent = counts ? "Plug back in" : "Pull the plug";
  $("plug").disabled = isOver();
}

function isOver() {
  return state.name === "refused" || state.name === "deleted";
}

function showFigures() {
  $("total").textContent = tally.total.toLocaleString();
  $("objects").textContent = fold.objects.size.toLocaleString() + (fold.isFull ? "+" : "");
  $("objects-title").textContent = fold.isWhole ? "Objects" : "Objects seen";
  $("objects-title").title = fold.isFull
    ? `counted up to ${OBJECTS_MAX.toLocaleString()}`
    : fold.isWhole ? "every object there is" : "since this page was loaded";
  $("rate").textContent = perSecond[perSecond.length - 2].toLocaleString();
  $("empty").hidden = list.size > 0;
}

function showTypes() {
  const busiest = tally.busiest(TYPES_SHOWN);
  const most = Math.max(1, ...busiest.map((type) => type.sum));
  $("bars").replaceChildren(...busiest.map((type) => bar(type, most)));
}

function bar(type, most) {
  const made = element("div", "bar");
  const track = element("div", "track");
  for (const kind of ["insert", "update", "delete"]) {
    const part = element("span", kind);
    part.style.width = `${(type[kind] / most) * 100}%`;
    part.title = `${type[kind].toLocaleString()} ${kind}`;
    track.append(part);
  }
  made.append(element("span", "name", plain(type.type)), track);
  made.append(element("span", "count", type.sum.toLocaleString()));
  return made;
}

function showGroups() {
  const rows = fold.largest(TABLE_ROWS_MAX).map((group) => {
    const made = element("tr");
    const name = element("td");
    const open = element("button", "plain", plain(`${group.type} ${group.folder}`));
    open.type = "button";
    open.dataset.group = group.name;
    open.disabled = !group.folder.endsWith("/");
    name.append(open);
    made.append(name, element("td", "number", group.count.toLocaleString()));
    return made;
  });
  $("groups").replaceChildren(...rows);
}

function showCrumbs() {
  const crumb = (text, focus) => {
    const made = element("button", "plain", plain(text));
    made.type = "button";
    made.onclick = () => look(focus);
    return made;
  };
  const crumbs = [];
  if (fold.focus) {
    const { type, prefix } = fold.focus;
    crumbs.push(crumb("everything", null), crumb(type, { type, prefix: "" }));
    let at = prefix.indexOf("/", 1);
    for (let from = 0; at >= 0; from = at + 1, at = prefix.indexOf("/", from)) {
      crumbs.push(crumb(prefix.slice(from, at + 1), { type, prefix: prefix.slice(0, at + 1) }));
    }
  }
  $("crumbs").replaceChildren(...crumbs);
}

function look(focus) {
  fold.look(focus);
  heat.clear();
  changed = true;
  showCrumbs();
}

function open(group) {
  const found = fold.groups.get(group);
  if (!found || !found.folder.endsWith("/")) return;
  look({ type: found.type, prefix: (fold.focus?.prefix ?? "") + found.folder });
}

function warmth(now) {
  return (name) => {
    const warm = heat.get(name);
    if (!warm) return null;
    const share = (warm.until - now) / HEAT_MS;
    if (share <= 0) {
      heat.delete(name);
      return null;
    }
    return { kind: warm.kind, share: calm.matches ? 0.5 : share * 0.85 };
  };
}

function draw(now) {
  requestAnimationFrame(draw);
  if (now - drawn < DRAW_EVERY_MS || (!changed && !heat.size)) return;
  drawn = now;
  areas = treemap($("map"), fold.largest(GROUPS_MAX), warmth(now));
  if (!changed) return;
  changed = false;
  if (!paused) list.show();
  showFigures();
  showTypes();
  if (document.querySelector("details").open) showGroups();
  $("pause").textContent = paused ? `Go on (${held.toLocaleString()} new)` : "Pause";
}

// Only while somebody looks at a feed that is there: each report costs the feed a few reads.
async function showStatus() {
  if (document.hidden || state.name !== "live") return;
  $("status").textContent = plain(await ask(chosen().feed));
}

function tick() {
  if (ticks++ % STATUS_EVERY_S === 0) showStatus();
  perSecond.push(0);
  perSecond.shift();
  sparkline($("spark"), perSecond.slice(0, -1));
  $("rate").textContent = perSecond[perSecond.length - 2].toLocaleString();
  showState();
}

// --- what a person does ----------------------------------------------------------------------

function pause() {
  paused = !paused;
  held = 0;
  $("pause").setAttribute("aria-pressed", String(paused));
  changed = true;
}

function plug() {
  if (isOver()) return;
  if (state.name === "waiting" || state.name === "paused") feed.start();
  else {
    notice("Unplugged. The feed goes on; this page will resume from its cursor.");
    feed.pause(UNPLUGGED_MS);
  }
}

function areaAt(event) {
  const { offsetX: x, offsetY: y } = event;
  return areas.find((box) => x >= box.x && x < box.x + box.width && y >= box.y && y < box.y + box.height);
}

$("choice").addEventListener("submit", (event) => {
  event.preventDefault();
  follow(chosen(), "");
  showCrumbs();
});
$("pause").addEventListener("click", pause);
$("plug").addEventListener("click", plug);
$("map").addEventListener("click", (event) => {
  const box = areaAt(event);
  if (box) open(box.item.name);
});
$("map").addEventListener("mousemove", (event) => {
  const box = areaAt(event);
  const text = box ? `${box.item.type} ${box.item.folder}: ${box.item.count.toLocaleString()}` : "";
  $("map").title = plain(text);
  $("map").style.cursor = box?.item.folder.endsWith("/") ? "pointer" : "default";
});
$("groups").addEventListener("click", (event) => {
  const group = event.target.dataset.group;
  if (group) open(group);
});
document.querySelector("details").addEventListener("toggle", () => {
  changed = true;
});
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, select, textarea")) return;
  if (event.key === "p") pause();
  if (event.key === "u") plug();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  changed = true;
});
new ResizeObserver(() => {
  changed = true;
}).observe($("map"));

$("how").textContent = [
  "tidings post insert video x32",
  "",
  `curl -H 'Content-Type: application/json' ${location.origin}/ \\`,
  `  -d '{"event":"insert","type":"video","id":"x32"}'`,
].join("\n");
document.documentElement.dataset.ready = colour("accent") ? "yes" : "no";
offerFeeds($("feed"), $("feed-names"), password);
begin();
setInterval(tick, 1000);
requestAnimationFrame(draw);
