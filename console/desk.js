// The desk: how a feed's followers and consumers are, and what operators do to them
// (docs/PROTOCOL.md, sections 9, 14, 16, 19 and 23). Everything it shows is text.

import { offerFeeds, Refused, request } from "./api.js";
import { feedsCard } from "./feeds.js";
import { element, plain } from "./list.js";

const LOOK_EVERY_MS = 5000;
const ALL = "all";

const $ = (id) => document.getElementById(id);

// What can be done to a consumer: its name on the button, and what will happen.
const CONSUMER = {
  pause: ["Pause", (name) => `${name} finishes what it has begun and is sent nothing more until it is resumed.`],
  resume: ["Resume", (name) => `${name} goes on where it stands, and what it failed on is tried at once.`],
  step: ["Pass the next", (name) => `The next message of ${name} counts as handled without being sent.`],
  park: ["Park the next", (name) => `The next message of ${name} is put aside with its error, and those behind it are sent.`],
  mark: [
    "Mark",
    (name) => `${name} goes on behind another place: what lies between is passed, or sent again. `
      + "now, oldest, copy (every object first) or the id of an event.",
  ],
  retry: ["Retry", (name, id) => `${name} is sent ${id === ALL ? "everything that is parked" : id} again, each once.`],
  drop: ["Drop", (name, id) => `${id === ALL ? "Everything that is parked" : id} is forgotten; ${name} is never sent it again.`],
};
const RELAY = {
  pause: ["Pause", (feed) => `${feed} reads nothing of its upstream until it is resumed, and keeps its seat as leader.`],
  resume: ["Resume", (feed) => `${feed} goes on reading behind the last page that it has.`],
  shutdown: ["Shut down", (feed) => `${feed} reads nothing and gives up its seat, so that another one may lead.`],
  start: ["Start", (feed) => `${feed} stands for election again, and goes on where it stood still.`],
};

const KEY = {
  revoke: ["Revoke", (id) => `${id} opens nothing more within five seconds, and who is connected with it is let go. It cannot be undone.`],
};

let feed = "main";
let shown = ""; // the consumer whose parked messages are open
let looks = 0; // an answer to an earlier look is not shown over that to a later one
let timer = 0;
let asking = null; // what the open dialog is about

// --- asking the feed -------------------------------------------------------------------------

// Read when it is needed and kept nowhere else: not in the address, not in the browser's storage.
const secret = () => $("key").value;

function ask(path, body) {
  return request(body === undefined ? "GET" : "POST", path, { secret: secret(), body });
}

const below = (...parts) => `/feeds/${[feed, ...parts].map(encodeURIComponent).join("/")}`;

// Null where it is not there: a stage calls no webhooks, a local feed is not copied.
async function unlessMissing(asked) {
  try {
    return await asked;
  } catch (error) {
    if (error instanceof Refused && (error.status === 404 || error.status === 501)) return null;
    throw error;
  }
}

async function look() {
  clearTimeout(timer);
  const mine = ++looks;
  try {
    const status = await ask(below("status"));
    const [consumers, hooks, keys, relays] = await Promise.all([
      ask(below("consumers")),
      // These two take a role that readers lack.
      unlessMissing(ask(below("hooks"))).catch(() => null),
      ask(below("keys")).catch(() => null),
      ask("/relays"),
    ]);
    const open = shown && consumers.consumers.find(({ name }) => name === shown);
    const [parked, notes] = open
      ? await Promise.all([ask(below("consumers", shown, "parked")), ask(below("consumers", shown, "notes"))])
      : [null, null];
    if (mine !== looks) return;
    badge(status.status, status.status === "OK" ? "live" : "waiting");
    say("unseen", "");
    showFollowers(status.followers ?? []);
    showConsumers(consumers.consumers, hooks?.hooks ?? []);
    showConsumer(open, parked?.parked, notes?.notes);
    showKeys(keys?.keys ?? []);
    showRelay(relays.relays.find((each) => each.feed === feed && each.source));
  } catch (error) {
    if (mine !== looks) return;
    const gone = error.code === "feed_deleted";
    badge(gone ? "deleted" : error instanceof Refused ? "refused" : "not reached", "refused");
    say("unseen", gone ? `The feed ${feed} was deleted.` : error.message);
    if (gone) clear();
  }
  if (mine === looks) await lookAtFeeds();
  timer = setTimeout(look, LOOK_EVERY_MS);
}

// --- what is shown ---------------------------------------------------------------------------

function say(id, text) {
  const shownText = plain(text);
  if ($(id).textContent === shownText) return; // a screen reader would read it again
  $(id).textContent = shownText;
  $(id).hidden = !text;
}

function badge(text, state) {
  if ($("badge").textContent !== text) $("badge").textContent = text;
  $("badge").dataset.state = state;
}

// Rows are changed in their places, by their names, so that the focus stays where it is.
function fill(body, records, key, cells) {
  const rows = new Map([...body.children].map((row) => [row.dataset.key, row]));
  records.forEach((record, at) => {
    const name = key(record);
    let row = rows.get(name);
    if (!row) {
      row = element("tr");
      row.dataset.key = name;
    }
    rows.delete(name);
    cells(record).forEach((value, column) => {
      const cell = row.children[column] ?? row.appendChild(element("td"));
      if (value instanceof Function) {
        if (!cell.childElementCount) cell.append(...value());
      } else if (cell.textContent !== plain(value)) cell.textContent = plain(value);
    });
    if (body.children[at] !== row) body.insertBefore(row, body.children[at] ?? null);
  });
  for (const row of rows.values()) row.remove();
}

function showFollowers(followers) {
  fill($("followers"), followers, ({ name }) => name, (each) => [
    each.name,
    number(each.lag_pages),
    age(each.lag_ms),
    each.leased ? "yes" : "no",
  ]);
}

function showConsumers(consumers, hooks) {
  const urls = new Map(hooks.map(({ name, url }) => [name, url]));
  $("no-consumers").hidden = consumers.length > 0;
  fill($("consumers"), consumers, ({ name }) => name, (each) => [
    () => [button(each.name, () => open(each.name), `Open ${each.name}`, "plain")],
    each.copying ? `${each.state}, copying` : each.state,
    number(each.lag_pages),
    age(each.lag_ms),
    number(each.parked),
    each.position ?? "before the oldest page",
    urls.get(each.name) ?? each.worker ?? "nobody",
  ]);
}

function showConsumer(consumer, parked, notes) {
  $("consumer").hidden = !consumer;
  if (!consumer) return;
  if ($("consumer-title").textContent !== plain(consumer.name)) {
    $("consumer-title").textContent = plain(consumer.name);
    buttons($("consumer-actions"), consumer.name, CONSUMER, below("consumers", consumer.name), [
      ...["pause", "resume", "step", "park", "mark"].map((action) => [action, undefined]),
      ...["retry", "drop"].map((action) => [action, ALL]),
    ]);
  }
  const { failure } = consumer;
  const about = failure?.id ? ` at ${failure.id}` : "";
  say("failure", failure ? `Failed ${failure.times} time${failure.times === 1 ? "" : "s"}${about}: ${failure.error}` : "");
  fill($("parked"), parked, ({ id }) => id, (each) => [
    each.id,
    `${each.event} ${each.data.type}/${each.data.id}`,
    each.error,
    number(each.attempts),
    () => ["retry", "drop"].map((action) =>
      act(CONSUMER, action, consumer.name, below("consumers", consumer.name), each.id)),
  ]);
  const numbered = notes.map((note, at) => ({ ...note, key: String(notes.length - at) }));
  fill($("notes"), numbered, ({ key }) => key, (each) => [
    new Date(each.at_ms).toISOString().slice(0, 19).replace("T", " "),
    each.who,
    each.id ? `${each.what} ${each.id}` : each.what,
    each.why,
  ]);
}

function showKeys(keys) {
  $("no-keys").hidden = keys.length > 0;
  fill($("keys"), keys, ({ id, state }) => `${id} ${state}`, (each) => [
    each.id,
    each.state,
    each.roles.join(", "),
    bound(each),
    each.expires_at ?? "never",
    each.made_by,
    each.label,
    () => (each.state === "holds" ? [act(KEY, "revoke", each.id, below("keys", each.id))] : []),
  ]);
}

function bound({ types, parents }) {
  const named = Object.entries({ types, parents }).filter(([, values]) => values);
  return named.map(([name, values]) => `${name} ${values.join(", ")}`).join("; ") || "all of the feed";
}

function showRelay(relay) {
  $("relay").hidden = !relay;
  if (!relay) return;
  const facts = {
    status: relay.status,
    role: relay.role,
    upstream: relay.upstream ?? relay.source,
    "pages behind": number(relay.lag_pages),
    error: relay.error || "none",
  };
  if ($("relay-facts").childElementCount === 0) {
    for (const name of Object.keys(facts)) $("relay-facts").append(element("dt", "", name), element("dd"));
    buttons($("relay-actions"), feed, RELAY, below("relay"), Object.keys(RELAY).map((action) => [action, undefined]));
  }
  Object.values(facts).forEach((fact, at) => {
    $("relay-facts").querySelectorAll("dd")[at].textContent = plain(fact);
  });
}

const number = (value) => (value ?? 0).toLocaleString();

function age(ms) {
  const s = Math.round((ms ?? 0) / 1000);
  if (s < 120) return `${s} s`;
  return s < 7200 ? `${Math.round(s / 60)} min` : `${Math.round(s / 3600)} h`;
}

function button(text, does, name = text, kind = "") {
  const made = element("button", kind, plain(text));
  made.type = "button";
  if (name !== text) made.setAttribute("aria-label", plain(name));
  made.addEventListener("click", does);
  return made;
}

function act(actions, action, name, path, id) {
  const [label] = actions[action];
  const text = id === ALL ? `${label} all` : label;
  const what = actions === KEY ? name : id;
  const about = what && what !== ALL ? `${label} ${what}` : text;
  return button(text, () => confirm(actions, action, name, path, { id, text }), about);
}

function buttons(group, name, actions, path, wanted) {
  group.replaceChildren(...wanted.map(([action, id]) => act(actions, action, name, path, id)));
}

// --- what a person does ----------------------------------------------------------------------

function open(name) {
  shown = name;
  look().then(() => {
    if (shown === name && !$("consumer").hidden) $("consumer-title").focus();
  });
}

function confirm(actions, action, name, path, { id, text }) {
  const [, says] = actions[action];
  asking = { path: `${path}/${action}`, text, name, id, marks: action === "mark", reasons: actions === CONSUMER };
  $("ask-title").textContent = plain(`${text}: ${name}`);
  $("ask-says").textContent = plain(says(name, id));
  $("ask-where").hidden = !asking.marks;
  for (const field of ["why", "by"]) {
    $(field).required = asking.reasons;
    $(field).closest("label").hidden = !asking.reasons;
  }
  $("why").value = "";
  $("do").textContent = text;
  $("ask").showModal();
}

async function done() {
  const { path, text, name, id, marks, reasons } = asking;
  const body = {
    ...(reasons && { why: $("why").value, by: $("by").value }),
    ...(marks && { position: $("where").value.trim() }),
    ...(id && { id }),
  };
  try {
    await ask(path, body);
    say("trouble", "");
    say("notice", `${text}: done to ${name}.`);
  } catch (error) {
    say("notice", "");
    say("trouble", `${text} was not done to ${name}: ${error.message}`);
  }
  look();
}

// Remove what the page shows of a feed.
function clear() {
  shown = "";
  $("relay-facts").replaceChildren();
  for (const id of ["consumer", "relay"]) $(id).hidden = true;
  for (const body of document.querySelectorAll("tbody:not(#feeds)")) body.replaceChildren();
}

function choose(name) {
  $("feed").value = name;
  feed = name;
  clear();
  say("notice", "");
  say("trouble", "");
  look();
}

$("choice").addEventListener("submit", (event) => {
  event.preventDefault();
  choose($("feed").value.trim() || "main");
});
$("ask-form").addEventListener("submit", (event) => {
  if (event.submitter?.value === "do") done();
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden) clearTimeout(timer);
  else look();
});

const lookAtFeeds = feedsCard({ secret, open: choose, say, fill, button });
offerFeeds($("feed"), $("feed-names"), secret);
const asked = new URLSearchParams(location.search).get("feed");
if (asked) $("feed").value = asked;
feed = $("feed").value.trim() || "main";
look();
