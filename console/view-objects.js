// Objects: find one by type and id, with its current state and its operations in the log; or list
// those of a type.

import { request, secret, transport } from "./api.js";
import { stringify } from "./client/numbers.js";
import { Reader } from "./client/reader.js";
import { inspect, isRow } from "./inspector.js";
import { button, card, copyButton, fill, h, long, number, plain, say, table, visible, when } from "./page.js";

export const title = "Objects";

const FIRST = "0000000000000000007fffff"; // before the first page of a feed
const OPERATIONS_MAX = 1000; // the newest; more are not read on a page
const LISTED_MAX = 1000; // as many as one page of the route has

let stop = () => {};

export function mount(root, context) {
  const { params } = context;
  const [type, id] = ["type", "id"].map((name) => params.get(name) ?? "");
  const inputs = {
    type: h("input", { id: "object-type", value: type, spellcheck: "false", placeholder: "all" }),
    id: h("input", { id: "object-id", value: id, spellcheck: "false", placeholder: "all" }),
  };
  inputs.id.addEventListener("input", () => (inputs.type.required = inputs.id.value !== ""));
  const form = h("form", { id: "search", class: "filters", autocomplete: "off", onsubmit: (event) => {
    event.preventDefault();
    context.setParams({ type: inputs.type.value.toLowerCase(), id: inputs.id.value });
  } }, h("label", {}, "Type ", inputs.type), h("label", {}, "Id ", inputs.id), h("button", { class: "main", type: "submit" }, "Search"));
  root.append(form);
  if (id) showObject(root, context, type, id);
  else showList(root, context, type);
}

export function unmount() {
  stop();
  stop = () => {};
}

// --- a list of objects -----------------------------------------------------------------------

function showList(root, context, type) {
  const none = h("p", { class: "soft", id: "no-objects", hidden: true }, "There are none.");
  const more = button("Show more", () => read(), undefined);
  more.hidden = true;
  const list = card("objects-card", type ? plain(`Objects of the type ${type}`) : "Objects", none,
    table("objects-found", "objects-card-title", ["Object", "Data", "Parents", "Changed"]),
    h("div", { class: "actions" }, more));
  root.append(list);
  const found = [];
  let after = "";

  async function read() {
    const query = new URLSearchParams({ ...(type && { type }), ...(after && { after }) });
    const isRead = await context.attempt(async () => {
      const goal = found.length + LISTED_MAX;
      do {
        const answer = await request("GET", `${context.below("objects")}?${query}`);
        found.push(...answer.objects);
        after = answer.next ?? "";
        query.set("after", after);
      } while (after && found.length < goal); // a page before the last one may be empty
    }, "", "The objects were not read");
    if (!isRead) return;
    none.hidden = found.length > 0;
    more.hidden = !after;
    fill(root.querySelector("#objects-found"), found, (each) => JSON.stringify([each.type, each.id]), (each) => [
      () => {
        const shown = h("button", { type: "button", class: "plain", onclick: () => context.setParams({ type: each.type, id: each.id }) }, long(`${each.type}/${each.id}`));
        return each.id.length > 28 ? [shown, copyButton("the id", () => each.id)] : [shown];
      },
      each.data === undefined ? "" : stringify(each.data),
      (each.parents ?? []).join(", "),
      when(each.timestamp),
    ]);
  }

  read();
}

// --- one object ------------------------------------------------------------------------------

function showObject(root, context, type, id) {
  const state = h("pre", { id: "object-state", tabindex: "0", role: "region", "aria-label": "The object as JSON", hidden: true });
  const none = h("p", { id: "no-object", hidden: true }, "The feed has no such object: it was deleted, or it never existed.");
  const copies = copyButton("the object", () => state.textContent);
  copies.hidden = true;
  const reach = h("p", { id: "reach", class: "soft", role: "status" }, "Reading the log …");
  root.append(
    card("object-card", plain(`${type}/${id}`), none, state, h("div", { class: "actions" }, copies)),
    card("history-card", "Operations in the log", reach,
      table("history", "history-card-title", ["Operation", "Committed", "Parents", "Cursor"])));

  const look = context.every(async () => {
    const query = new URLSearchParams({ type, id });
    const { objects } = await request("GET", `${context.below("objects")}?${query}`);
    none.hidden = objects.length > 0;
    state.hidden = copies.hidden = objects.length === 0;
    const text = objects.length ? visible(stringify(objects[0], 2)) : "";
    if (state.textContent !== text) state.textContent = text;
  });

  const operations = []; // newest first
  let isCopied = false; // the log begins after the first operations of the object

  function take(events) {
    for (const event of events) {
      if (event.event === "reset") isCopied = true;
      else if (event.event !== "live" && event.data.id === id) operations.unshift(event);
    }
    operations.splice(OPERATIONS_MAX);
    show();
  }

  function show() {
    fill(root.querySelector("#history"), operations, (each) => `${each.id} ${each.event}`, (each) => [
      () => [button(isRow(each) ? "state" : each.event, () => inspect(each, context), `Open ${each.event} ${each.id}`, "plain")],
      when(isRow(each) ? each.data.timestamp : parseInt(each.id.slice(0, 8), 16) * 1000),
      (each.data.parents ?? []).join(", "),
      each.id,
    ]);
  }

  function report(name) {
    if (name !== "live") return;
    const counted = operations.length === OPERATIONS_MAX ? `the newest ${number(OPERATIONS_MAX)}` : number(operations.length);
    const missing = isCopied ? " The log no longer has the oldest ones; a row shows the state that they led to." : "";
    say(reach, `${counted} found, newest first; new ones are added.${missing}`);
    look();
  }

  stop = history(context, { type, id }, {
    events: (events) => {
      const isLive = reach.textContent.includes("found");
      take(events);
      if (isLive) report("live");
    },
    state: report,
    refused: ({ message }) => say(reach, `The server refuses: ${message}`),
  });
}

// Read the operations of one object from the beginning of the log; return a function that stops.
function history(context, { type, id }, hooks) {
  const choice = { feed: context.feed, types: [type], ids: [id], password: secret };
  const reader = new Reader(transport(choice), FIRST, hooks);
  context.onReached(() => reader.start());
  reader.start();
  return () => reader.stop();
}
