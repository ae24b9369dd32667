// The shell of the page: the chosen feed, the views, the sign-in dialog, and whether the host
// answers. Everything that the page shows is text.
//
// The address names what is shown: `console/?feed=main&types=video#/events` is the view `events` of
// the feed `main`; the other parameters of the query string are the filters of the view.
//
// A view is a module, listed in VIEWS, that exports
//
//   title                   its name in the navigation
//   mount(root, context)    show it in the empty element *root*
//   unmount()               stop what `mount` started; the shell then empties *root*
//   forget()                optional: drop what was read, because another person signs in
//
// The shell mounts a view again when another feed is chosen, when a person signs in, and when the
// filters change. *context* is valid until `unmount`:
//
//   feed                    the name of the chosen feed
//   params                  the filters, as URLSearchParams without `feed`
//   opens                   what the address names: the view, or a part of it (PARTS)
//   below(...parts)         the path of parts of the feed: below("keys", id) is /feeds/main/keys/id
//   request(method, path, {body, headers})
//                           the JSON answer; rejects with `Refused` (api.js) for another status than 2xx
//   access()                what the credential allows on the feed: {principal, roles}, null if it is
//                           not known (docs/PROTOCOL.md, 10.10)
//   may(role)               whether the credential has *role* on the whole feed, or it is not known
//   every(look)             call the async function *look* now, every five seconds while the page is
//                           visible and the host answers, and when the returned function is called;
//                           the shell shows the errors with which it rejects
//   attempt(does, done, failed)
//                           await does(); say *done*, or *failed* with the error; true if it succeeded
//   say(text)               the notice, announced politely
//   trouble(text)           the error, announced at once
//   setParams(values)       set filters in the address ("" removes one), and mount the view again
//   go(view, values)        show another view, with these filters
//   choose(feed)            choose another feed
//   stream(name, text, untilMs)
//                           the state of the view's own connection, for the badge in the header
//   heard()                 something arrived on this connection
//   onReached(act)          call *act* when the host answers again, and act(true) if it does not answer
//                           while the view's connection is silent
//   signIn(refusal)         open the sign-in dialog, because of an answer {code, message}
//
// Helpers for elements, tables, dialogs and numbers are in page.js, requests in api.js.

import { isSignedIn, listFeeds, Refused, request, signIn, signOut, Unreached } from "./api.js";
import { Health, line } from "./health.js";
import { ask, button, h, plain, say } from "./page.js";
import * as clients from "./view-clients.js";
import * as consumers from "./view-consumers.js";
import * as events from "./view-events.js";
import * as objects from "./view-objects.js";
import * as overview from "./view-overview.js";
import * as settings from "./view-settings.js";
import * as webhooks from "./view-webhooks.js";

const VIEWS = { events, objects, consumers, webhooks, clients, overview, settings };
const PARTS = { post: "events", keys: "settings", feeds: "settings" }; // what has an address within a view
const LOOK_EVERY_MS = 5000;
const SILENT_MS = 5000;

const $ = (id) => document.getElementById(id);

let shown = null; // what is mounted: {name, feed, search, view, stop}
let health = { state: "connecting" };
let stream = null; // the state of the view's own connection: {name, text, untilMs, heardMs}

// --- the address -----------------------------------------------------------------------------

function here() {
  const params = new URLSearchParams(location.search);
  const feed = params.get("feed") || "main";
  params.delete("feed");
  const wanted = location.hash.replace(/^#\/?/, "");
  const name = Object.hasOwn(PARTS, wanted) ? PARTS[wanted] : wanted;
  return { name: Object.hasOwn(VIEWS, name) ? name : "events", opens: wanted, feed, params };
}

function addressOf(name, feed, params) {
  const query = new URLSearchParams({ feed, ...Object.fromEntries(params) });
  return `?${query}#/${name}`;
}

function go(name, feed, params) {
  history.pushState(null, "", addressOf(name, feed, params));
  show({ again: true });
}

function withParams(params, values) {
  const made = new URLSearchParams(params);
  for (const [name, value] of Object.entries(values)) {
    if (value) made.set(name, value);
    else made.delete(name);
  }
  return made;
}

// --- the views -------------------------------------------------------------------------------

function show({ again = false } = {}) {
  const { name, opens, feed, params } = here();
  const search = params.toString();
  if (!again && shown?.name === name && shown.opens === opens && shown.feed === feed && shown.search === search) return;
  const isFirst = shown === null;
  const isOtherFeed = shown?.feed !== feed;
  leave();
  const view = VIEWS[name];
  shown = { name, opens, feed, search, view, problem: "", stops: [], reached: [] };
  showFeeds();
  document.title = `${view.title} · ${plain(feed)} · Tidings`;
  for (const link of $("views").children) {
    if (link.dataset.view === name) {
      link.setAttribute("aria-current", "page");
      link.scrollIntoView({ block: "nearest", inline: "nearest" });
    } else link.removeAttribute("aria-current");
  }
  view.mount($("view"), contextOf(shown, params));
  if (isOtherFeed) health = { state: "connecting" };
  showHealth();
  if (isOtherFeed) look.follow(feed);
  if (!isFirst && document.activeElement === document.body) $("view").focus({ preventScroll: true });
}

function leave() {
  if (!shown) return;
  for (const stop of shown.stops) stop();
  shown.view.unmount();
  $("view").replaceChildren();
  stream = null;
  for (const id of ["notice", "trouble", "unseen"]) say($(id), "");
}

function contextOf(mounted, params) {
  const { name, opens, feed } = mounted;
  const below = (...parts) => `/feeds/${[feed, ...parts].map(encodeURIComponent).join("/")}`;
  let known = null;
  const access = () => (known ??= request("GET", below("access")).catch(() => (known = null)));
  const whileShown = (act) => (...values) => (shown === mounted ? act(...values) : undefined);
  return {
    feed,
    params,
    opens,
    request,
    below,
    access,
    may: async (role) => {
      const own = (await access())?.roles;
      return !own || own.some((each) => each.role === role && !each.types && !each.parents);
    },
    every: (looks) => every(mounted, looks),
    say: whileShown((text) => say($("notice"), text)),
    trouble: whileShown((text) => say($("trouble"), text)),
    attempt: async (does, done, failed) => {
      try {
        await does();
      } catch (error) {
        if (shown === mounted && isUnsigned(error)) askOnce(error);
        else if (shown === mounted) tell("", `${failed}: ${error.message}`);
        return false;
      } finally {
        look.check();
      }
      if (shown === mounted) tell(done, "");
      return true;
    },
    setParams: whileShown((values) => go(name, feed, withParams(params, values))),
    go: whileShown((other, values = {}) => go(other, feed, withParams(new URLSearchParams(), values))),
    choose: whileShown((other) => go(name, other, new URLSearchParams())),
    stream: whileShown((state, text, untilMs = 0) => {
      const isLost = state === "waiting" && stream?.name !== state;
      stream = { name: state, text, untilMs, heardMs: Date.now() };
      showHealth();
      if (isLost) look.check(); // it may be the host that is gone
    }),
    heard: whileShown(() => stream && (stream.heardMs = Date.now())),
    onReached: (act) => mounted.reached.push(act),
    signIn: whileShown(askOnce),
  };
}

function tell(notice, trouble) {
  say($("notice"), notice);
  say($("trouble"), trouble);
}

function every(mounted, looks) {
  let timer = 0;
  let number = 0;
  const turn = async () => {
    clearTimeout(timer);
    const mine = ++number;
    try {
      if (!document.hidden && health.state !== "unreachable") await looks();
      mounted.problem = "";
    } catch (error) {
      if (shown === mounted && isUnsigned(error)) askOnce(error);
      else if (!(error instanceof Unreached)) mounted.problem = error.message;
      else if (shown === mounted) look.check();
      if (!(error instanceof Unreached || error instanceof Refused)) console.error(error);
    }
    if (shown === mounted) showProblem();
    if (shown === mounted && mine === number) timer = setTimeout(turn, LOOK_EVERY_MS);
  };
  const whenVisible = () => !document.hidden && turn();
  document.addEventListener("visibilitychange", whenVisible);
  mounted.reached.push(turn);
  mounted.stops.push(() => {
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", whenVisible);
  });
  turn();
  return turn;
}

// --- whether the host answers ----------------------------------------------------------------

const look = new Health((found) => {
  const isBack = health.state === "unreachable" && found.state !== "unreachable";
  health = found;
  showHealth();
  if (found.error?.status === 401) askOnce(found.error);
  const isSilent = found.state === "unreachable" && isReading() && Date.now() - stream.heardMs > SILENT_MS;
  if (isBack || isSilent) for (const act of shown.reached) act(isSilent);
});

const isReading = () => ["live", "catching-up"].includes(stream?.name);
const isUnsigned = (error) => error?.status === 401 && !isSignedIn();

const NOT_OK = { reached: "", connecting: "connecting", refused: "refused", deleted: "deleted", unreachable: "not reached" };

function showHealth() {
  const { state, report, error } = health;
  const own = state === "unreachable" && !isReading() ? null : stream;
  const isOk = report?.status === "OK";
  const badge = own?.text ?? (isUnsigned(error) ? "not signed in" : NOT_OK[state] || report?.status || "no status");
  if ($("badge").textContent !== badge) $("badge").textContent = badge;
  $("badge").dataset.state = own?.name ?? (state === "reached" && !isOk ? "waiting" : state);
  const { text, title } = state === "reached" ? line(report, isReading()) : { text: "", title: "" };
  if ($("status").textContent !== text) $("status").textContent = plain(text);
  $("status").title = plain(title);
  $("sign-in").textContent = isSignedIn() ? "Sign out" : "Sign in";
  showProblem();
  showTimes();
}

// Why the view is not refreshed.
function showProblem() {
  const { state, error } = health;
  if (state === "deleted") say($("unseen"), `The feed ${shown.feed} was deleted.`);
  else say($("unseen"), state === "refused" && !isUnsigned(error) ? error.message : shown.problem);
}

// Seconds that pass are not announced.
function showTimes() {
  const seconds = (ms) => Math.max(0, Math.ceil(ms / 1000));
  const parts = [];
  if (health.state === "unreachable" && !isReading()) {
    const { answeredMs, nextMs } = look;
    parts.push(answeredMs ? `last answer ${seconds(Date.now() - answeredMs)} s ago` : "no answer yet");
    parts.push(`next attempt in ${seconds(nextMs - Date.now())} s`);
  } else if (stream?.untilMs) parts.push(`next attempt in ${seconds(stream.untilMs - Date.now())} s`);
  $("since").textContent = parts.join(", ");
  $("since").hidden = parts.length === 0;
}

// --- what a person does ----------------------------------------------------------------------

// Ask because of an answer: once until the view is mounted again, so that Cancel is respected.
function askOnce(refusal) {
  if (shown.isAsked) return;
  shown.isAsked = true;
  askForCredential(refusal);
}

async function askForCredential({ code = "", message = "" } = {}) {
  if ($("dialog")) return;
  const isKey = code === "no_password_set";
  const needs = isKey ? `The feed ${shown.feed} has no password. Enter a key.` : `Enter the password of the feed ${shown.feed}, or a key.`;
  const given = await ask({
    title: "Sign in",
    says: code && isSignedIn() ? `The last one is not accepted (${message}). ${needs}` : needs,
    fields: [
      { name: "user", label: "User name", hidden: true, autocomplete: "username" },
      { name: "secret", label: isKey ? "Key" : "Password or key", type: "password", required: true, autocomplete: "current-password" },
    ],
    note: "This tab stays signed in until you close it or sign out.",
    action: "Sign in",
    extra: button("Sign in with a user name", ({ target }) => {
      target.hidden = true;
      $("dialog-user").hidden = false;
      $("dialog-user").focus();
    }, undefined, "plain"),
  });
  if (given) changePerson(() => signIn(given.user, given.secret));
}

// Streams end, and what was read is dropped.
function changePerson(change) {
  change();
  for (const view of Object.values(VIEWS)) view.forget?.();
  health = { state: "connecting" };
  show({ again: true });
  look.check();
  offerFeeds();
}

// Offer the names of feeds. Without a list, for example if the key permits only one feed, the name can
// be typed.
let names = [];

async function offerFeeds() {
  const found = await listFeeds().catch(() => []);
  names = found.filter(({ state }) => state === "live").map(({ feed }) => feed);
  showFeeds();
}

function showFeeds() {
  const { feed } = shown;
  const all = [...new Set([feed, ...names])].sort();
  const before = [...$("feed").options].map(({ value }) => value).join();
  if (before !== [...all, ""].join()) $("feed").replaceChildren(...all.map((name) => new Option(plain(name), name)), new Option("another …", ""));
  $("feed").value = feed;
}

async function chooseFeed(wanted) {
  const found = wanted || (await ask({ title: "Feed", fields: [{ name: "name", label: "Name of the feed", required: true }], action: "Show" }))?.name;
  const { name, params } = here();
  if (found && found !== shown.feed) go(name, found, withParams(params, { from: "", type: "", id: "" })); // those are of one feed
  else showFeeds();
}

$("views").append(...Object.entries(VIEWS).map(([name, { title }]) =>
  h("a", { href: `#/${name}`, "data-view": name }, title)));
$("feed").addEventListener("change", ({ target }) => chooseFeed(target.value));
$("feed").addEventListener("focus", offerFeeds);
$("sign-in").addEventListener("click", () => (isSignedIn() ? changePerson(signOut) : askForCredential()));
addEventListener("popstate", () => show());
setInterval(showTimes, 1000);
show();
offerFeeds();
