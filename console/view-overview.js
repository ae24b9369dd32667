// How the feed is: its followers, and its progress if it is copied from another feed.

import { request, unlessMissing } from "./api.js";
import { act } from "./form.js";
import { age, button, card, element, fill, h, number, plain, table } from "./page.js";
import { relayPlan } from "./requests.js";

export const title = "Overview";

// What can be done to a relay: the name on the button, and what will happen.
const RELAY = {
  pause: ["Pause", (feed) => `${feed} reads nothing from its upstream until it is resumed, and keeps its lease as leader.`],
  resume: ["Resume", (feed) => `${feed} continues after the last page that it has.`],
  shutdown: ["Shut down", (feed) => `${feed} stops reading and releases its lease, so that another member can lead.`],
  start: ["Start", (feed) => `${feed} takes part in elections again, and continues where it stopped.`],
};

export function mount(root, context) {
  const { feed, below } = context;
  const followers = card("followers-card", "Followers",
    h("p", { class: "soft" }, "What the feed does with each page. ", h("code", {}, "push-1"), " and so on are lanes of ", h("code", {}, "push"), "."),
    table("followers", "followers-card-title", ["Name", "Pages behind", "Oldest waits for", "Runs"]));
  const facts = h("dl", { id: "relay-facts", class: "facts" });
  const actions = h("div", { class: "actions", role: "group", "aria-labelledby": "relay-title" });
  const relay = card("relay", "Copied from another feed", facts, actions);
  relay.hidden = true;
  root.append(followers, relay);

  const look = context.every(async () => {
    const status = await request("GET", below("status"));
    showFollowers(status.followers ?? []);
    const relays = await unlessMissing(request("GET", "/relays"));
    actions.hidden = !(await context.may("admin"));
    showRelay(relays?.relays.find((each) => each.feed === feed && each.source));
  });

  function showFollowers(found) {
    fill(root.querySelector("#followers"), found, ({ name }) => name, (each) => [
      each.name,
      number(each.lag_pages),
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

export function unmount() {}
