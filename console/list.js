// The list of events, newest first: bounded, and written as text only. Each event opens by click or
// Enter; the arrow keys move between the events, so that Tab leaves the list.

import { stringify } from "./client/numbers.js";
import { element, h, long, plain, time } from "./page.js";

const ROWS_MAX = 300; // more than a person reads; a browser draws it without effort
const KEPT_MAX = 5000; // for a search

const isOperation = (data) => data.type !== undefined;

export class EventList {
  #list;
  #waiting = []; // newest last
  #kept = []; // what was shown or did not match the search, newest last
  wanted = ""; // the text of a search
  found = 0; // of those that are kept
  #events = new WeakMap(); // by row

  // *open* is called with an event that a person opens.
  constructor(list, open) {
    this.#list = list;
    list.addEventListener("click", ({ target }) => {
      const event = this.#events.get(target.closest("li"));
      if (event) open(event);
    });
    list.addEventListener("keydown", (event) => this.#move(event));
    list.addEventListener("focusin", ({ target }) => this.#stop(target));
  }

  add(event) {
    this.#waiting.push(event);
    if (this.#waiting.length > 2 * KEPT_MAX) this.#waiting.splice(0, KEPT_MAX);
  }

  // Show only events with *text* in their id, type, data or any other field.
  search(text) {
    this.wanted = text.trim().toLowerCase();
    this.#waiting.unshift(...this.#kept.splice(0));
    this.found = 0;
    this.#list.replaceChildren();
  }

  #matches({ id, event, data }) {
    if (!this.wanted || !isOperation(data)) return !this.wanted;
    const text = `${id} ${event} ${data.type}/${data.id} ${stringify(data)}`;
    return text.toLowerCase().includes(this.wanted);
  }

  get kept() {
    return this.#kept.filter(({ data }) => isOperation(data)).length;
  }

  get size() {
    return this.#list.childElementCount;
  }

  // Put what was added onto the page.
  show() {
    if (!this.#waiting.length) return;
    const rows = document.createDocumentFragment();
    const matching = this.#waiting.slice(-KEPT_MAX).filter((event) => this.#matches(event));
    this.found += matching.length;
    for (const event of matching.slice(-ROWS_MAX).reverse()) {
      const made = row(event);
      if (made.querySelector(".object")) this.#events.set(made, event);
      rows.append(made);
    }
    this.#kept = [...this.#kept, ...this.#waiting].slice(-KEPT_MAX);
    this.#waiting = [];
    this.#list.prepend(rows);
    while (this.#list.childElementCount > ROWS_MAX) this.#list.lastElementChild.remove();
    if (!this.#list.contains(document.activeElement)) this.#stop(this.#list.querySelector(".object"));
  }

  // Make *button* the only one that Tab reaches.
  #stop(button) {
    if (!button?.matches(".object")) return;
    for (const other of this.#list.querySelectorAll('.object[tabindex="0"]')) other.tabIndex = -1;
    button.tabIndex = 0;
  }

  #move(event) {
    const step = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity }[event.key];
    if (!step || !event.target.matches(".object")) return;
    const buttons = [...this.#list.querySelectorAll(".object")];
    const at = Math.min(Math.max(buttons.indexOf(event.target) + step, 0), buttons.length - 1);
    buttons[at].focus();
    event.preventDefault();
  }
}

function row(event) {
  const { id, event: name, data } = event;
  if (name === "note") return element("li", "row mark note", data.text);
  if (name === "reset" || name === "live") {
    const text = name === "reset" ? "reset: a copy of everything follows" : "live: the copy is complete";
    return element("li", "row mark", text);
  }
  const made = element("li", "row");
  made.title = plain(id);
  const kind = ["insert", "update", "delete"].includes(name) ? name : "other";
  const parents = Array.isArray(data.parents) ? data.parents : [];
  made.append(
    element("span", `kind ${kind}`, plain(name)),
    h("button", { type: "button", class: "object plain", tabindex: "-1" }, long(`${data.type}/${data.id}`)),
    h("span", { class: "about" }, time(data.timestamp), parents.length ? ` · ${plain(parents.join("  "))}` : ""),
    h("code", { class: "data", dir: "auto" }, data.data === undefined ? "" : plain(stringify(data.data))),
  );
  return made;
}
