// The parts that all views are made of: elements, tables, dialogs and ways to write a value.

const TEXT_CHARS_MAX = 300; // ids may be long, a row is one line

// Names come from producers: marks that turn the direction of text, and controls, are shown.
const UNPRINTABLE = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

const escaped = (found) => `\\u${found.codePointAt(0).toString(16).padStart(4, "0")}`;

// Return a text of any length with its lines, for example JSON.
export const visible = (text) => text.replace(UNPRINTABLE, (found) => (found === "\n" ? found : escaped(found)));

export function plain(value) {
  const text = String(value).replace(UNPRINTABLE, escaped);
  return text.length > TEXT_CHARS_MAX ? `${text.slice(0, TEXT_CHARS_MAX)}…` : text;
}

export const isPrintable = (text) => text.replaceAll("\n", "").search(UNPRINTABLE) < 0;

export function element(name, className, text = "") {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.textContent = text;
  return made;
}

// Return an element: h("p", { class: "soft" }, "text", other). Attributes that are false, null or
// undefined are left out, true is the attribute without a value, a function listens to the event:
// { onclick }. Children that are not elements are text.
export function h(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value instanceof Function) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

// A section with a heading, which names it. Its *id* is also that of the heading: ID-title.
export function card(id, title, ...children) {
  return h("section", { class: "card", id, "aria-labelledby": `${id}-title` },
    h("h2", { id: `${id}-title`, tabindex: "-1" }, title), ...children);
}

// A button; *name* is what a screen reader says, if it is more than *text*.
export function button(text, does, name = text, className = "") {
  return h("button", {
    type: "button",
    class: className || null,
    "aria-label": name === text ? null : plain(name),
    onclick: does,
  }, plain(text));
}

// A button that copies what *value* returns.
export function copyButton(what, value) {
  const made = button("Copy", async () => {
    await copy(value(), made);
    made.textContent = "Copied";
    setTimeout(() => (made.textContent = "Copy"), 2000);
  }, `Copy ${what}`);
  return made;
}

// A page of another address than localhost has no clipboard without HTTPS.
async function copy(text, beside) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = h("textarea", { "aria-hidden": "true" });
  area.value = text;
  beside.after(area);
  area.select();
  document.execCommand("copy");
  area.remove();
  return beside.focus();
}

// A table that scrolls by itself; `fill(body, …)` with the element of *id* as its body. *columns*
// are the texts of its header.
export function table(id, labelledBy, columns) {
  const head = columns.map((text) => h("th", { scope: "col" }, text));
  return h("div", { class: "scroll", role: "group", tabindex: "0", "aria-labelledby": labelledBy },
    h("table", { "aria-labelledby": labelledBy },
      h("thead", {}, h("tr", {}, head)), h("tbody", { id })));
}

// Show *records* as rows of *body*. *key* names a record, *cells* returns its values: text, {text,
// title}, or a function that returns elements, which is called once for a row. Rows are changed in
// their places, by their names, so that the focus stays where it is.
export function fill(body, records, key, cells) {
  const rows = new Map([...body.children].map((row) => [row.dataset.key, row]));
  records.forEach((record, at) => {
    const name = key(record);
    let row = rows.get(name);
    if (!row) {
      row = element("tr");
      row.dataset.key = name;
    }
    rows.delete(name);
    cells(record).forEach((value, column) => {
      const cell = row.children[column] ?? row.appendChild(element("td"));
      if (value instanceof Function) {
        if (!cell.childElementCount) cell.append(...value());
        return;
      }
      const { text, title = "" } = value?.text === undefined ? { text: value } : value;
      if (cell.textContent !== plain(text)) cell.textContent = plain(text);
      if (cell.title !== title) cell.title = title;
    });
    if (body.children[at] !== row) body.insertBefore(row, body.children[at] ?? null);
  });
  for (const row of rows.values()) row.remove();
}

// Write *text* into an element that is hidden without one. A text that did not change is not
// written again, because a screen reader would read it again.
export function say(shown, text) {
  const wanted = plain(text);
  if (shown.textContent === wanted && shown.hidden === !text) return;
  shown.textContent = wanted;
  shown.hidden = !text;
}

// Ask a person; return a promise of the values by name, or of null after Cancel or Escape.
//
// *fields* are {name, label, ...}: the other properties are attributes of the input (`value`,
// `required`, `type`, `placeholder`); `match` is the text that must be entered to enable the button.
// Ids: `dialog`, `dialog-says`, `dialog-do`, and `dialog-NAME` for each field.
// *extra* is an element at the end, *onInput(values)* is called at first and with each change.
export function ask({ title, says = "", fields = [], action, note = "", extra, onInput }) {
  const inputs = fields.map(({ name, label, match, ...attributes }) => {
    const input = h("input", { id: `dialog-${name}`, spellcheck: "false", ...attributes });
    const isCheck = attributes.type === "checkbox";
    return { name, match, input, label: h("label", { class: isCheck ? "check" : null }, isCheck ? [input, label] : [label, input]) };
  });
  const does = h("button", { id: "dialog-do", class: "main", type: "submit", value: "do" }, action);
  const form = h("form", { method: "dialog", autocomplete: "off" },
    h("h2", { id: "dialog-title" }, plain(title)),
    says && h("p", { id: "dialog-says" }, plain(says)),
    inputs.map(({ label }) => label),
    note && h("p", { class: "soft" }, note),
    h("div", { class: "actions" }, does,
      h("button", { type: "submit", value: "", formnovalidate: true }, "Cancel")),
    extra);
  const dialog = h("dialog", { id: "dialog", "aria-labelledby": "dialog-title", "aria-describedby": says ? "dialog-says" : null }, form);
  const valuesOf = () => Object.fromEntries(inputs.map(({ name, input }) =>
    [name, input.type === "checkbox" ? input.checked : input.value.trim()]));
  const check = () => {
    onInput?.(valuesOf());
    does.disabled = inputs.some(({ match, input }) => match !== undefined && input.value !== match);
  };
  check();
  form.addEventListener("input", check);
  const before = document.activeElement;
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    let values = null;
    form.addEventListener("submit", (event) => {
      if (event.submitter?.value !== "do" || does.disabled) return;
      values = valuesOf();
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      before?.focus?.();
      resolve(values);
    });
  });
}

export const number = (value) => (value ?? 0).toLocaleString();
export const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;

export function age(ms) {
  const s = Math.round((ms ?? 0) / 1000);
  if (s < 120) return `${s} s`;
  return s < 7200 ? `${Math.round(s / 60)} min` : `${Math.round(s / 3600)} h`;
}

const second = (ms) => new Date(ms).toISOString().slice(0, 19).replace("T", " ");
const zoneMinutes = (ms) => Math.round(-new Date(ms).getTimezoneOffset());

// The zone of this browser at *ms*, for example UTC+5:30.
export function zone(ms = Date.now()) {
  const minutes = Math.abs(zoneMinutes(ms));
  const rest = minutes % 60 ? `:${String(minutes % 60).padStart(2, "0")}` : "";
  return `UTC${minutes ? (zoneMinutes(ms) < 0 ? "-" : "+") + Math.floor(minutes / 60) + rest : ""}`;
}

// The value of an input of the type `datetime-local`.
export const localTime = (ms) => second(ms + zoneMinutes(ms) * 60000).replace(" ", "T");

// The local time of *value*, milliseconds or a text of RFC 3339, with its zone; its title is in UTC.
// Any other text stays as it is.
export function when(value) {
  const ms = typeof value === "number" ? value : Date.parse(value);
  if (!Number.isFinite(ms)) return { text: String(value ?? "") };
  return { text: `${localTime(ms).replace("T", " ")} ${zone(ms)}`, title: `${second(ms)} UTC` };
}

export function time(value) {
  const { text, title } = when(value);
  return h("time", { title }, plain(text));
}
