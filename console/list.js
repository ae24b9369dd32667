// The list of events, newest first: bounded, and written as text only. Each event opens by click or
// Enter; the arrow keys move between the events, so that Tab leaves the list.

import { element, h, plain, time } from "./page.js";

const ROWS_MAX = 300; // more than a person reads; a browser draws it without effort

export class EventList {
  #list;
  #waiting = []; // newest last, at most ROWS_MAX: older ones would not be shown anyway
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
    for (const event of this.#waiting.slice(-ROWS_MAX).reverse()) {
      const made = row(event);
      if (made.querySelector(".object")) this.#events.set(made, event);
      rows.append(made);
    }
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
  const said = data.data && typeof data.data === "object" ? data.data.message : undefined;
  const about = [typeof said === "string" ? said : "", parents.join("  ")];
  made.append(
    element("span", `kind ${kind}`, plain(name)),
    h("button", { type: "button", class: "object plain", tabindex: "-1" }, plain(`${data.type}/${data.id}`)),
    h("span", { class: "about" }, time(data.timestamp), plain(["", ...about.filter(Boolean)].join(" · "))),
    element("code", "id", plain(id)),
  );
  return made;
}
