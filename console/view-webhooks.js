// The webhooks of the feed: create, change, rotate and delete them, and their recent attempts
// (docs/PROTOCOL.md, section 19). Parked messages and the position are those of the webhook's
// consumer, which the view of consumers shows.

import { unlessMissing } from "./api.js";
import { act, form, KEPT, offer, REASON, reveal } from "./form.js";
import { age, button, card, fill, h, number, say, table, when } from "./page.js";
import { hookDeletion, hookPlan, listText, rotation } from "./requests.js";

export const title = "Webhooks";

const FORMATS = ["cloudevents", "debezium", "tidings"].map((each) => [each, each]);
const FIELDS = [
  { name: "name", label: "Name", required: true, aka: ["consumer"], hint: "Also the name of its consumer" },
  { name: "url", label: "Address", type: "url", required: true, maxlength: "2048", hint: "Of the receiver, with https" },
  { name: "from", label: "Start at", value: "now", hint: "now, oldest or the id of an event" },
  { name: "format", label: "Format", kind: "select", options: FORMATS },
  { name: "attempts", label: "Attempts before a message is parked", kind: "number", value: "10", hint: "10 take 75 hours, 4 take 35 minutes" },
  { name: "types", label: "Types", kind: "list", placeholder: "all, or a,b" },
  { name: "parents", label: "Parents", kind: "list", placeholder: "all, or x,y" },
  { name: "ids", label: "Ids", kind: "list", placeholder: "all, or i,j*" },
  { name: "erasures", label: "Receive an erasure as erase, not as delete", kind: "check" },
];

let opened = ""; // the webhook that is shown in full

export function mount(root, context) {
  const { below, request } = context;
  let known = new Map();
  const none = h("p", { class: "soft", id: "no-hooks", hidden: true });
  const list = card("hooks-card", "Webhooks", none, table("hooks", "hooks-card-title",
    ["Name", "State", "Address", "Oldest waits for", "Parked", "Next attempt", "Actions"]));
  const failure = h("p", { id: "hook-failure", hidden: true });
  const attempts = h("div", { hidden: true }, h("h3", { id: "attempts-title" }, "Recent attempts"), table("attempts", "attempts-title",
    ["When", "Event", "Attempt", "Answer", "Took"]));
  const noAttempts = h("p", { class: "soft", hidden: true });
  const details = card("hook", "", failure, h("div", { class: "actions" },
    button("Edit", () => edit()), button("Rotate the secret", () => rotate()), button("Delete", () => remove()),
    button("Parked messages and position", () => context.go("consumers", { consumer: opened }))), noAttempts, attempts);
  details.hidden = true;
  const made = card("new-hook-card", "Create or change a webhook");
  root.append(list, details, made);
  const $ = (id) => root.querySelector(`#${id}`);

  const hook = form({
    id: "new-hook",
    title: "Create or change a webhook",
    fields: FIELDS,
    plan: (values) => hookPlan(context.feed, values, known.get(values.name)),
    context,
    async done(answer, { name }) {
      const isNew = answer.secret !== undefined;
      context.say(isNew ? `${name} is created.` : `${name} is changed.`);
      context.trouble((answer.warnings ?? []).join(" "));
      if (isNew) showSecret(name, answer.secret, answer.warnings);
      await look();
    },
    onRefused: () => look(),
  });
  const look = context.every(async () => {
    if (!(await context.may("admin"))) return;
    const found = await unlessMissing(request("GET", below("hooks")));
    say(none, !found ? "This host calls no webhooks: run tidings consume with a program."
      : found.hooks.length ? "" : "The feed has none.");
    made.hidden = !found;
    const hooks = found?.hooks ?? [];
    known = new Map(hooks.map((each) => [each.name, each]));
    fill($("hooks"), hooks, ({ name }) => name, (each) => [
      () => [button(each.name, () => open(each.name), `Open ${each.name}`, "plain")],
      each.state,
      each.url,
      age(each.lag_ms),
      each.parked ?? 0,
      each.again_ms ? when(each.again_ms) : "with the next event",
      () => [button("Edit", () => edit(each.name), `Edit ${each.name}`)],
    ]);
    hook.refresh();
    await showDetails(known.get(opened));
  });
  offer(made, context, "admin", "create and change webhooks", hook.element);

  async function showDetails(shown, { focus = false } = {}) {
    details.hidden = !shown;
    if (!shown) return;
    const heading = $("hook-title");
    if (heading.textContent !== shown.name) {
      heading.textContent = shown.name;
      attempts.hidden = noAttempts.hidden = true; // those of another webhook
    }
    if (focus) heading.focus();
    const times = shown.failure?.times;
    say(failure, times ? `Failed ${times} time${times === 1 ? "" : "s"}: ${shown.failure.error}` : "");
    const found = await unlessMissing(request("GET", below("hooks", shown.name, "attempts")));
    if (!found || opened !== shown.name) return;
    say(noAttempts, found.attempts.length ? "" : `None since the server started at ${when(found.since).text}.`);
    attempts.hidden = found.attempts.length === 0;
    fill($("attempts"), found.attempts, (each) => `${each.at} ${each.id} ${each.number}`, (each) => [
      when(each.at),
      each.id,
      each.number ?? 0,
      each.accepted ? `accepted, ${each.status}` : each.error ?? String(each.status),
      `${number(each.duration_ms)} ms`,
    ]);
  }

  function open(name) {
    opened = name;
    showDetails(known.get(name), { focus: true }).catch(look); // which shows the error
  }

  function edit(name = opened) {
    const { url, format, attempts: count, types, parents, ids, erasures } = known.get(name);
    hook.set({
      name, url, format, attempts: String(count), types: listText(types), parents: listText(parents), ids: listText(ids), erasures,
    });
    hook.focus();
  }

  async function rotate() {
    const name = opened;
    const answer = await act(context, {
      title: `Rotate the secret: ${name}`,
      says: `${name} gets a new secret. The present one also signs for 24 hours, so that the receiver can change to the new one.`,
      action: "Rotate",
      plan: () => rotation(context.feed, name),
      done: `${name} has a new secret.`,
      failed: `The secret of ${name} was not rotated`,
    });
    if (answer) showSecret(name, answer.secret);
  }

  async function remove() {
    const name = opened;
    await act(context, {
      title: `Delete: ${name}`,
      says: `${name} is sent nothing more; its position and its parked messages are removed. It cannot be undone.`,
      fields: REASON,
      note: KEPT,
      action: "Delete",
      plan: (values) => hookDeletion(context.feed, name, values),
      done: `${name} is deleted.`,
      failed: `${name} was not deleted`,
    });
    look();
  }
}

function showSecret(name, secret, warnings) {
  reveal({
    title: `The secret of ${name}`,
    says: "With it the receiver checks the signatures of the messages. It is not shown again.",
    label: "Secret",
    secret,
    warnings,
  });
}

export function unmount() {}
