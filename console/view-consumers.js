// Named consumers and webhooks: their state, what they failed on, and what operators do to them
// (docs/PROTOCOL.md, sections 14 and 19).

import { request, unlessMissing } from "./api.js";
import { stringify } from "./client/numbers.js";
import { act, form, KEPT, offer, REASON } from "./form.js";
import { age, button, card, fill, h, number, plain, say, table, when } from "./page.js";
import { actionPlan, consumerPlan, listText } from "./requests.js";

export const title = "Consumers";

const ALL = "all";

const FIELDS = [
  { name: "name", label: "Name", required: true, aka: ["consumer"] },
  { name: "from", label: "Start at", value: "oldest", hint: "oldest, now, copy (every object first) or the id of an event" },
  { name: "types", label: "Types", kind: "list", placeholder: "all, or a,b" },
  { name: "parents", label: "Parents", kind: "list", placeholder: "all, or x,y" },
  { name: "ids", label: "Ids", kind: "list", placeholder: "all, or i,j*" },
  { name: "erasures", label: "Receive an erasure as erase, not as delete", kind: "check" },
];

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
  delete: ["Delete", (name) => `${name}, its position and its parked messages are removed. It cannot be undone.`],
  drop: ["Drop", (name, id) => `${id === ALL ? "Everything that is parked" : id} is removed; ${name} is never sent it again.`],
};

let opened = ""; // the consumer that is shown in full; it stays so while other views are shown

export function mount(root, context) {
  const { below } = context;
  opened = context.params.get("consumer") ?? opened;
  let known = new Map();
  const none = h("p", { class: "soft", hidden: true }, "The feed has none.");
  const list = card("consumers-card", "Named consumers and webhooks", none,
    table("consumers", "consumers-card-title",
      ["Name", "State", "Pages behind", "Oldest waits for", "Parked", "Position", "Worker or webhook"]));
  const failure = h("p", { id: "failure", hidden: true });
  const actions = h("div", { class: "actions", role: "group", "aria-labelledby": "consumer-title" });
  const details = card("consumer", "", failure, actions,
    h("h3", { id: "parked-title" }, "Parked messages"),
    table("parked", "parked-title", ["Id", "Message", "Data", "Error", "Attempts", "Actions"]),
    h("h3", { id: "notes-title" }, "What operators did"),
    table("notes", "notes-title", ["When", "Who", "What", "Why"]));
  details.hidden = true;
  const made = card("new-consumer-card", "Create or change a consumer");
  root.append(list, details, made);
  const $ = (id) => root.querySelector(`#${id}`);

  const consumer = form({
    id: "new-consumer",
    title: "Create or change a consumer",
    fields: FIELDS,
    plan: (values) => consumerPlan(context.feed, values, known.get(values.name)),
    context,
    async done(answer, { name }, { note }) {
      context.say(note ? `${name} is changed.` : `${name} is created.`);
      await look();
    },
    onRefused: () => look(),
  });
  const look = context.every(async () => {
    const isAdmin = await context.may("admin");
    const [{ consumers }, hooks] = await Promise.all([
      request("GET", below("consumers")),
      isAdmin ? unlessMissing(request("GET", below("hooks"))) : null,
    ]);
    known = new Map(consumers.map((each) => [each.name, each]));
    consumer.refresh();
    const open = consumers.find(({ name }) => name === opened);
    const [parked, notes] = open
      ? await Promise.all([request("GET", below("consumers", open.name, "parked")), request("GET", below("consumers", open.name, "notes"))])
      : [];
    showConsumers(consumers, hooks?.hooks ?? []);
    showConsumer(open, parked?.parked, notes?.notes, isAdmin);
  });
  offer(made, context, "admin", "create and change consumers", consumer.element);

  function showConsumers(consumers, hooks) {
    const urls = new Map(hooks.map(({ name, url }) => [name, url]));
    none.hidden = consumers.length > 0;
    fill($("consumers"), consumers, ({ name }) => name, (each) => [
      () => [button(each.name, () => open(each.name), `Open ${each.name}`, "plain")],
      each.copying ? `${each.state}, copying` : each.state,
      each.lag_pages ?? 0,
      age(each.lag_ms),
      each.parked ?? 0,
      each.position ?? "before the oldest page",
      urls.get(each.name) ?? each.worker ?? "no worker",
    ]);
  }

  function showConsumer(found, parked, notes, isAdmin) {
    details.hidden = !found;
    if (!found) return;
    const { name } = found;
    if ($("consumer-title").textContent !== plain(name)) {
      $("consumer-title").textContent = plain(name);
      if (isAdmin) actions.replaceChildren(
        button("Edit", () => edit(found), `Edit ${name}`),
        ...["pause", "resume", "step", "park", "mark", "delete"].map((action) => actionButton(action, name)),
        ...["retry", "drop"].map((action) => actionButton(action, name, ALL)));
    }
    const failed = found.failure;
    const about = failed?.id ? ` at ${failed.id}` : "";
    say(failure, failed ? `Failed ${failed.times} time${failed.times === 1 ? "" : "s"}${about}: ${failed.error}` : "");
    fill($("parked"), parked, ({ id }) => id, (each) => [
      each.id,
      `${each.event} ${each.data.type}/${each.data.id}`,
      each.data.data === undefined ? "" : stringify(each.data.data),
      each.error,
      each.attempts ?? 0,
      () => (isAdmin ? ["retry", "drop"].map((action) => actionButton(action, name, each.id)) : []),
    ]);
    const numbered = notes.map((note, at) => ({ ...note, key: String(notes.length - at) }));
    fill($("notes"), numbered, ({ key }) => key, (each) => [
      when(each.at_ms),
      each.who,
      each.id ? `${each.what} ${each.id}` : each.what,
      each.why,
    ]);
  }

  function edit({ name, types, parents, ids, erasures }) {
    consumer.set({ name, types: listText(types), parents: listText(parents), ids: listText(ids), erasures });
    consumer.focus();
  }

  async function open(name) {
    opened = name;
    await look();
    if (opened === name && !details.hidden) $("consumer-title").focus();
  }

  function actionButton(action, name, id) {
    const [label] = ACTIONS[action];
    const text = id === ALL ? `${label} all` : label;
    return button(text, () => decide(action, text, name, id), id && id !== ALL ? `${label} ${id}` : text);
  }

  async function decide(action, text, name, id) {
    const position = { name: "position", label: "Position", value: "now", required: true };
    await act(context, {
      title: `${text}: ${name}`,
      says: ACTIONS[action][1](name, id),
      fields: [...(action === "mark" ? [position] : []), ...REASON],
      note: KEPT,
      action: text,
      plan: (values) => actionPlan(context.feed, action, name, id, values),
      done: `${text}: done to ${name}.`,
      failed: `${text} was not done to ${name}`,
    });
    look();
  }
}

export function unmount() {}
