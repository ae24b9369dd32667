// How the feed is: its throughput and lag over the last hour, its followers, and its progress if it
// is copied from another feed.

import { Refused, request, unlessMissing } from "./api.js";
import { lineChart } from "./lines.js";
import { act } from "./form.js";
import { age, button, card, element, fill, h, number, plain, say, table } from "./page.js";
import { Picture } from "./picture.js";
import { relayPlan } from "./requests.js";

export const title = "Overview";

// What can be done to a relay: the name on the button, and what will happen.
const RELAY = {
  pause: ["Pause", (feed) => `${feed} reads nothing from its upstream until it is resumed, and keeps its lease as leader.`],
  resume: ["Resume", (feed) => `${feed} continues after the last page that it has.`],
  shutdown: ["Shut down", (feed) => `${feed} stops reading and releases its lease, so that another member can lead.`],
  start: ["Start", (feed) => `${feed} takes part in elections again, and continues where it stopped.`],
};

const SEEN_MAX = 720; // an hour of samples of five seconds
let picture = null; // what was shown last; it resumes when this view is shown again
const seen = new Map(); // feed -> samples that this page took itself, oldest first

export function mount(root, context) {
  const { feed, below } = context;
  const followers = card("followers-card", "Followers",
    h("p", { class: "soft" }, "What the feed does with each page. ", h("code", {}, "push-1"), " and so on are lanes of ", h("code", {}, "push"), "."),
    table("followers", "followers-card-title", ["Name", "Pages behind", "Oldest waits for", "Runs"]));
  const facts = h("dl", { id: "relay-facts", class: "facts" });
  const actions = h("div", { class: "actions", role: "group", "aria-labelledby": "relay-title" });
  const relay = card("relay", "Copied from another feed", facts, actions);
  relay.hidden = true;
  const throughput = lineChart("throughput", "Throughput", "a minute");
  const lag = lineChart("lag", "Lag", "pages");
  const origin = h("p", { class: "soft", id: "origin" });
  root.append(card("hour", "The last hour", origin, throughput.element, lag.element), followers, relay);

  const key = JSON.stringify([feed, context.params.get("types"), context.params.get("parents")]);
  if (picture?.key !== key) picture = new Picture(key);
  picture.mount(root, context);

  let hasHistory = true;

  const look = context.every(async () => {
    const status = await request("GET", below("status"));
    showFollowers(status.followers ?? []);
    await showHour(status);
    const relays = await unlessMissing(request("GET", "/relays"));
    actions.hidden = !(await context.may("admin"));
    showRelay(relays?.relays.find((each) => each.feed === feed && each.source));
  });

  // Draw what the host kept; without that, what this page saw.
  async function showHour(status) {
    const kept = hasHistory ? await unlessMissing(request("GET", below("history"))).catch(unlessRefused) : null;
    hasHistory = kept !== null;
    const samples = kept?.samples ?? (await watch(status));
    const perMinute = (each, count) => Math.round((count * 60000) / (kept?.interval_ms ?? each.interval_ms));
    if (!kept) say(origin, "This is what the page has seen since it was opened: the host keeps no history, or not for this credential.");
    else say(origin, samples.length ? "One value a minute, kept by the host." : "The host has no value yet; it takes one each minute after the first change.");
    throughput.show(samples.map((each) => ({
      ms: each.ms,
      values: { "operations posted": perMinute(each, each.operations), "events sent on streams": perMinute(each, each.events) },
    })));
    lag.show(samples.map(({ ms, lags }) => ({ ms, values: lags })));
  }

  // Take a sample from *status*; return all of them.
  async function watch(status) {
    const found = await request("GET", below("consumers")).catch(unlessRefused);
    const mine = seen.get(feed) ?? seen.set(feed, []).get(feed);
    const last = mine.at(-1);
    const ms = Date.now();
    const named = (each, prefix = "") => [`${prefix}${each.name}`, each.lag_pages ?? 0];
    mine.push({
      ms,
      received: status.events_received,
      sent: status.events_sent,
      interval_ms: Math.max(1, last ? ms - last.ms : 1),
      operations: Math.max(0, status.events_received - (last?.received ?? status.events_received)),
      events: Math.max(0, status.events_sent - (last?.sent ?? status.events_sent)),
      lags: Object.fromEntries([
        ...(status.followers ?? []).map((each) => named(each)),
        ...(found?.consumers ?? []).map((each) => named(each, "consumer ")),
      ]),
    });
    mine.splice(0, mine.length - SEEN_MAX);
    return mine;
  }

  function showFollowers(found) {
    fill(root.querySelector("#followers"), found, ({ name }) => name, (each) => [
      each.name,
      each.lag_pages ?? 0,
      age(each.lag_ms),
      each.leased ? "yes" : "no",
    ]);
  }

  function showRelay(found) {
    relay.hidden = !found;
    if (!found) return;
    const values = {
      status: found.status,
      role: found.role,
      upstream: found.upstream ?? found.source,
      "pages behind": number(found.lag_pages),
      error: found.error || "none",
    };
    if (facts.childElementCount === 0) {
      for (const name of Object.keys(values)) facts.append(element("dt", "", name), element("dd"));
      actions.append(...Object.keys(RELAY).map((action) => button(RELAY[action][0], () => decide(action))));
    }
    Object.values(values).forEach((value, at) => {
      facts.querySelectorAll("dd")[at].textContent = plain(value);
    });
  }

  async function decide(action) {
    const [text, says] = RELAY[action];
    await act(context, {
      title: `${text}: ${feed}`,
      says: says(feed),
      action: text,
      plan: () => relayPlan(feed, action),
      done: `${text}: done to ${feed}.`,
      failed: `${text} was not done to ${feed}`,
    });
    look();
  }
}

function unlessRefused(error) {
  if (error instanceof Refused) return null;
  throw error;
}

export function unmount() {
  picture.unmount();
}

export function forget() {
  seen.clear();
  if (picture) picture.key = null;
}
