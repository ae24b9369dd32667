// Post an event to the feed (docs/PROTOCOL.md, sections 3 and 4).

import { form, offer } from "./form.js";
import { card } from "./page.js";
import { postPlan } from "./requests.js";

export const title = "Post";

const FIELDS = [
  { name: "event", label: "Operation", kind: "select", options: ["insert", "update", "delete"].map((each) => [each, each]) },
  { name: "type", label: "Type", required: true, maxlength: "128", placeholder: "video" },
  { name: "id", label: "Id", required: true, maxlength: "512", placeholder: "x32" },
  { name: "parents", label: "Parents", kind: "list", hint: "With commas between them: user/42, channel/7" },
  { name: "tags", label: "Tags", kind: "list" },
  { name: "timestamp", label: "Time of the change", placeholder: "now", hint: "For example 2026-11-20T17:19:10Z" },
  { name: "data", label: "Data", kind: "json", hint: "Any JSON value, or nothing" },
];

export function mount(root, context) {
  const posted = card("post-card", "Post an event");
  root.append(posted);
  const made = form({
    id: "post",
    title: "Post an event",
    fields: FIELDS,
    plan: (values) => postPlan(context.feed, values),
    submit: "Post",
    context,
    done: ({ ids }, { event, type, id }) => context.say(`Posted ${event} of ${type}/${id} as ${ids[0]}.`),
  });
  offer(posted, context, "ingest", "post events", made.element);
}

export function unmount() {}
