// The list of events, newest first: bounded, and written as text only.

import { element, plain } from "./page.js";

const ROWS_MAX = 300; // more than a person reads; a browser draws it without effort

export class EventList {
  #list;
  #waiting = []; // newest last, at most ROWS_MAX: older ones would not be shown anyway

  constructor(list) {
    this.#list = list;
    this.skipped = 0; // events held back while the list was still
  }

  add(event) {
    this.#waiting.push(event);
    if (this.#waiting.length > 2 * ROWS_MAX) this.#waiting.splice(0, ROWS_MAX);
  }

  clear() {
    this.#waiting = [];
    this.#list.replaceChildren();
  }

  get size() {
    return this.#list.childElementCount;
  }

  // Put what was added onto the page.
  show() {
    if (!this.#waiting.length) return;
    const rows = document.createDocumentFragment();
    for (const event of this.#waiting.slice(-ROWS_MAX).reverse()) rows.append(row(event));
    this.#waiting = [];
    this.#list.prepend(rows);
    while (this.#list.childElementCount > ROWS_MAX) this.#list.lastElementChild.remove();
  }
}

function row(event) {
  const { id, event: name, data } = event;
  if (name === "note") return element("li", "row mark note", data.text);
  if (name === "reset" || name === "live") {
    const told = name === "reset" ? "reset: a copy of everything follows" : "live: the copy is complete";
    return element("li", "row mark", told);
  }
  const made = element("li", "row");
  made.title = plain(id);
  const kind = ["insert", "update", "delete"].includes(name) ? name : "other";
  const parents = Array.isArray(data.parents) ? data.parents : [];
  const said = data.data && typeof data.data === "object" ? data.data.message : undefined;
  const about = [moment(data.timestamp), typeof said === "string" ? said : "", parents.join("  ")];
  made.append(
    element("span", `kind ${kind}`, plain(name)),
    element("span", "object", plain(`${data.type}/${data.id}`)),
    element("span", "about", plain(about.filter(Boolean).join(" · "))),
    element("code", "id", plain(id)),
  );
  return made;
}

function moment(timestamp) {
  const text = String(timestamp ?? "");
  return text.length >= 19 ? `${text.slice(0, 10)} ${text.slice(11, 19)}` : text;
}
