// Post an event to the feed (docs/PROTOCOL.md, sections 3 and 4).

import { form, offer } from "./form.js";
import { button, card, h } from "./page.js";
import { postPlan } from "./requests.js";

const FIELDS = [
  { name: "event", label: "Operation", kind: "select", options: ["insert", "update", "delete"].map((each) => [each, each]) },
  { name: "type", label: "Type", required: true, maxlength: "128", placeholder: "video" },
  { name: "id", label: "Id", required: true, maxlength: "512", placeholder: "x32" },
  { name: "parents", label: "Parents", kind: "list", hint: "With commas between them: user/42, channel/7" },
  { name: "tags", label: "Tags", kind: "list" },
  { name: "timestamp", label: "Time of the change", placeholder: "now", hint: "For example 2026-11-20T17:19:10Z" },
  { name: "data", label: "Data", kind: "json", hint: "Any JSON value, or nothing" },
];

// Show the form in a dialog, in *root*, until an event is posted.
export function openPost(root, context) {
  const posted = card("post-card", "Post an event");
  const dialog = h("dialog", { id: "post-dialog", class: "wide", "aria-labelledby": "post-card-title", onclose: () => dialog.remove() },
    posted, h("div", { class: "actions" }, button("Close", () => dialog.close())));
  const made = form({
    id: "post",
    title: "Post an event",
    fields: FIELDS,
    plan: (values) => postPlan(context.feed, values),
    submit: "Post",
    context,
    done: ({ ids }, { event, type, id }) => {
      dialog.close();
      context.say(`Posted ${event} of ${type}/${id} as ${ids[0]}.`);
    },
  });
  root.append(dialog);
  dialog.showModal();
  offer(posted, context, "ingest", "post events", made.element).then(() => made.focus());
}
