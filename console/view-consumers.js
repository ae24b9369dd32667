// Named consumers and webhooks: their state, what they failed on, and what operators do to them
// (docs/PROTOCOL.md, sections 14 and 19).

import { request, unlessMissing } from "./api.js";
import { age, ask, button, card, fill, h, moment, number, plain, say, table } from "./page.js";

export const title = "Consumers";

const ALL = "all";

// What can be done to a consumer: the name on the button, and what will happen.
const ACTIONS = {
  pause: ["Pause", (name) => `${name} finishes what it has begun and is sent nothing more until it is resumed.`],
  resume: ["Resume", (name) => `${name} continues at its position, and what it failed on is tried at once.`],
  step: ["Skip the next", (name) => `The next message of ${name} counts as handled without being sent.`],
  park: ["Park the next", (name) => `The next message of ${name} is put aside with its error, and the messages after it are sent.`],
  mark: [
    "Move",
    (name) => `${name} continues after another position: what lies between is skipped, or sent again. `
      + "The position is now, oldest, copy (every object first) or the id of an event.",
  ],
  retry: ["Retry", (name, id) => `${name} is sent ${id === ALL ? "everything that is parked" : id} again, each once.`],
  drop: ["Drop", (name, id) => `${id === ALL ? "Everything that is parked" : id} is removed; ${name} is never sent it again.`],
};

let opened = ""; // the consumer that is shown in full; it stays so while other views are shown

export function mount(root, context) {
  const { below } = context;
  const none = h("p", { class: "soft", hidden: true },
    "The feed has none. ", h("code", {}, "tidings consumers create NAME"), " creates a consumer, ",
    h("code", {}, "tidings hooks create URL"), " one that is called.");
  const list = card("consumers-card", "Named consumers and webhooks", none,
    table("consumers", "consumers-card-title",
      ["Name", "State", "Pages behind", "Oldest waits for", "Parked", "Position", "Worker or webhook"]));
  const failure = h("p", { id: "failure", hidden: true });
  const actions = h("div", { class: "actions", role: "group", "aria-labelledby": "consumer-title" });
  const details = card("consumer", "", failure, actions,
    h("h3", { id: "parked-title" }, "Parked messages"),
    table("parked", "parked-title", ["Id", "Message", "Error", "Attempts", "Actions"]),
    h("h3", { id: "notes-title" }, "What operators did"),
    table("notes", "notes-title", ["When", "Who", "What", "Why"]));
  details.hidden = true;
  root.append(list, details);
  const $ = (id) => root.querySelector(`#${id}`);

  const look = context.every(async () => {
    const [{ consumers }, hooks] = await Promise.all([
      request("GET", below("consumers")),
      // Webhooks take a role that readers lack.
      unlessMissing(request("GET", below("hooks"))).catch(() => null),
    ]);
    const open = consumers.find(({ name }) => name === opened);
    const [parked, notes] = open
      ? await Promise.all([request("GET", below("consumers", open.name, "parked")), request("GET", below("consumers", open.name, "notes"))])
      : [];
    showConsumers(consumers, hooks?.hooks ?? []);
    showConsumer(open, parked?.parked, notes?.notes);
  });

  function showConsumers(consumers, hooks) {
    const urls = new Map(hooks.map(({ name, url }) => [name, url]));
    none.hidden = consumers.length > 0;
    fill($("consumers"), consumers, ({ name }) => name, (each) => [
      () => [button(each.name, () => open(each.name), `Open ${each.name}`, "plain")],
      each.copying ? `${each.state}, copying` : each.state,
      number(each.lag_pages),
      age(each.lag_ms),
      number(each.parked),
      each.position ?? "before the oldest page",
      urls.get(each.name) ?? each.worker ?? "no worker",
    ]);
  }

  function showConsumer(consumer, parked, notes) {
    details.hidden = !consumer;
    if (!consumer) return;
    const { name } = consumer;
    if ($("consumer-title").textContent !== plain(name)) {
      $("consumer-title").textContent = plain(name);
      actions.replaceChildren(
        ...["pause", "resume", "step", "park", "mark"].map((action) => actionButton(action, name)),
        ...["retry", "drop"].map((action) => actionButton(action, name, ALL)));
    }
    const failed = consumer.failure;
    const about = failed?.id ? ` at ${failed.id}` : "";
    say(failure, failed ? `Failed ${failed.times} time${failed.times === 1 ? "" : "s"}${about}: ${failed.error}` : "");
    fill($("parked"), parked, ({ id }) => id, (each) => [
      each.id,
      `${each.event} ${each.data.type}/${each.data.id}`,
      each.error,
      number(each.attempts),
      () => ["retry", "drop"].map((action) => actionButton(action, name, each.id)),
    ]);
    const numbered = notes.map((note, at) => ({ ...note, key: String(notes.length - at) }));
    fill($("notes"), numbered, ({ key }) => key, (each) => [
      moment(each.at_ms),
      each.who,
      each.id ? `${each.what} ${each.id}` : each.what,
      each.why,
    ]);
  }

  async function open(name) {
    opened = name;
    await look();
    if (opened === name && !details.hidden) $("consumer-title").focus();
  }

  function actionButton(action, name, id) {
    const [label] = ACTIONS[action];
    const text = id === ALL ? `${label} all` : label;
    return button(text, () => act(action, text, name, id), id && id !== ALL ? `${label} ${id}` : text);
  }

  async function act(action, text, name, id) {
    const position = { name: "position", label: "Position", value: "now", required: true };
    const given = await ask({
      title: `${text}: ${name}`,
      says: ACTIONS[action][1](name, id),
      fields: [
        ...(action === "mark" ? [position] : []),
        { name: "why", label: "Why", required: true },
        { name: "by", label: "Your name", required: true, autocomplete: "username" },
      ],
      note: "Reason and name are kept with the action for a year.",
      action: text,
    });
    if (!given) return;
    await context.attempt(() => request("POST", below("consumers", name, action), { body: { ...given, ...(id && { id }) } }),
      `${text}: done to ${name}.`, `${text} was not done to ${name}`);
    look();
  }
}

export function unmount() {}
