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

const END_CHARS = 14;

// A name of any length in one line: the middle is cut if it is wider than its place.
export function long(value) {
  const text = plain(value);
  const end = text.length > 2 * END_CHARS ? text.slice(-END_CHARS) : "";
  return h("span", { class: "long", title: text, dir: "auto" },
    element("span", "start", text.slice(0, text.length - end.length)), end && element("span", "end", end));
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
  const head = columns.map((text, column) => h("th", { scope: "col" },
    text === "Actions" ? text : button(text, ({ currentTarget }) => sort(currentTarget.parentElement, column), text, "plain")));
  return h("div", { class: "scroll", role: "group", tabindex: "0", "aria-labelledby": labelledBy },
    h("table", { "aria-labelledby": labelledBy },
      h("caption", { hidden: true }), h("thead", {}, h("tr", {}, head)), h("tbody", { id })));
}

// Sort by a column; by the same one again the other way round, and then as it was.
function sort(head, column) {
  const table = head.closest("table");
  const next = { ascending: "descending", descending: "" }[head.getAttribute("aria-sort")] ?? "ascending";
  for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
  if (next) head.setAttribute("aria-sort", next);
  table.dataset.column = next ? column : "";
  order(table.tBodies[0]);
}

// Put the rows in their order, and say how many there are.
function order(body) {
  const table = body.parentElement;
  if (!table.caption) return;
  const rows = [...body.children];
  const column = table.dataset.column || null;
  const isUp = table.querySelector("[aria-sort]")?.getAttribute("aria-sort") === "ascending";
  const textOf = ({ children }) => children[column].dataset.sort ?? children[column].textContent;
  const compare = (one, two) => textOf(one).localeCompare(textOf(two), undefined, { numeric: true });
  const sorted = rows.toSorted(column === null ? (one, two) => one.dataset.at - two.dataset.at
    : (one, two) => (isUp ? compare(one, two) : compare(two, one)));
  if (rows.some((row, at) => row !== sorted[at])) {
    const focused = document.activeElement;
    body.append(...sorted);
    focused.focus({ preventScroll: true });
  }
  say(table.caption, rows.length ? plural(rows.length, "row") : "");
}

// Show *records* as rows of *body*. *key* names a record, *cells* returns its values: text, {text,
// title, sort}, or a function that returns elements, which is called once for a row. Rows are changed
// in their places, by their names, so that the focus stays where it is.
export function fill(body, records, key, cells) {
  const heads = [...body.parentElement.querySelectorAll("thead th")].map(({ textContent }) => textContent);
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
      const cell = row.children[column] ?? row.appendChild(h("td", { "data-label": heads[column] }));
      if (value instanceof Function) {
        if (!cell.childElementCount) cell.append(...value());
        return;
      }
      const { text, title = "", sort: key } = typeof value === "number" ? { text: number(value), sort: value } : value?.text === undefined ? { text: value } : value;
      if (cell.textContent !== plain(text)) cell.textContent = plain(text);
      if (cell.title !== title) cell.title = title;
      if (key !== undefined) cell.dataset.sort = key;
    });
    row.dataset.at = at;
    if (!row.isConnected) body.append(row);
  });
  for (const row of rows.values()) row.remove();
  order(body);
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
  const text = s < 120 ? `${s} s` : s < 7200 ? `${Math.round(s / 60)} min` : `${Math.round(s / 3600)} h`;
  return { text, sort: s };
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
  return { text: `${localTime(ms).replace("T", " ")} ${zone(ms)}`, title: `${second(ms)} UTC`, sort: second(ms) };
}

export function time(value) {
  const { text, title } = when(value);
  return h("time", { title }, plain(text));
}

// Call *draw* now and before each frame of the screen; return a function that ends this.
export function everyFrame(draw) {
  let frame = 0;
  const next = (now) => {
    frame = requestAnimationFrame(next);
    draw(now);
  };
  next(0);
  return () => cancelAnimationFrame(frame);
}
