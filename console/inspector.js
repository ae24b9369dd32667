// One event in full, in a dialog: its fields, its data, and the forms in which streams send it.

import { stringify } from "./client/numbers.js";
import { copyButton, h, time, visible } from "./page.js";

const ROW_DIGITS = "89abcdef"; // the slot of a row of a copy begins with one of these

export const isRow = ({ id }) => id.length === 24 && ROW_DIGITS.includes(id[18]);

// Return the event as a stream with `format=cloudevents` sends it (docs/PROTOCOL.md, 6.11). The
// stream adds a digest to the id of a row of a copy.
export function toCloudEvent({ id, event, data, traceparent }, feed) {
  return {
    specversion: "1.0",
    id,
    source: `/feeds/${feed}`,
    type: `tidings.${event}`,
    cursor: id,
    ...(traceparent && { traceparent }),
    subject: `${data.type}/${data.id}`,
    ...(data.timestamp && { time: data.timestamp }),
    ...(!isRow({ id }) && { sequence: id.slice(8) }),
    datacontenttype: "application/json",
    data,
  };
}

// Show *event* of the feed of *context* until the person closes the dialog.
export function inspect(event, context) {
  const { id, event: name, data } = event;
  const forms = {
    Data: data.data ?? null,
    JSON: { id, event: name, data },
    CloudEvents: toCloudEvent(event, context.feed),
  };
  const text = h("pre", { id: "inspected", tabindex: "0", role: "region", "aria-label": "The event as JSON" });
  const tabs = Object.keys(forms).map((form) => h("button", { type: "button", onclick: () => show(form) }, form));
  const dialog = h("dialog", { id: "inspector", class: "wide", "aria-labelledby": "inspector-title" },
    h("h2", { id: "inspector-title" }, visible(`${name} ${data.type}/${data.id}`)),
    facts(event),
    h("div", { class: "actions", role: "group", "aria-label": "Form of the event" }, tabs, copyButton("the JSON", () => text.textContent)),
    text,
    h("div", { class: "actions" },
      leading("Object and its history", () => context.go("objects", { type: data.type, id: data.id })),
      isRow(event) ? null : leading("Read from here", () => context.go("events", { from: id })),
      leading("Close", () => {}, "main")));

  function show(form) {
    text.textContent = visible(stringify(forms[form], 2));
    for (const tab of tabs) tab.setAttribute("aria-pressed", String(tab.textContent === form));
  }

  function leading(label, goes, className = null) {
    return h("button", { type: "button", class: className, onclick: () => (dialog.close(), goes()) }, label);
  }

  const before = document.activeElement;
  dialog.addEventListener("close", () => {
    dialog.remove();
    before?.focus?.();
  });
  show("Data");
  document.body.append(dialog);
  dialog.showModal();
}

function facts({ id, data }) {
  const lists = ["parents", "tags", "changed"].filter((name) => name === "parents" || data[name]?.length);
  const seconds = parseInt(id.slice(0, 8), 16);
  const known = [
    ["Type", data.type],
    ["Id", data.id, copyButton("the id", () => data.id)],
    ...lists.map((name) => [name[0].toUpperCase() + name.slice(1), data[name]?.join("\n") || "none"]),
    ["Timestamp", data.timestamp ? time(data.timestamp) : "none"],
    ...(data.ref ? [["Link", data.ref]] : []),
    ...(isRow({ id }) ? [["Sent as", "a row of a copy"]] : [["Committed", time(seconds * 1000)]]),
    ["Cursor", id, copyButton("the cursor", () => id)],
  ];
  return h("dl", { class: "facts" }, known.map(([name, value, copies]) =>
    [h("dt", {}, name), h("dd", {}, value instanceof Element ? value : visible(String(value)), copies && " ", copies)]).flat());
}
