// Where reading begins: all objects, now, a time, or a cursor (docs/PROTOCOL.md, section 5).

import { h, localTime, zone } from "./page.js";

const HINTS = { time: "Objects that changed since then, then all events", cursor: "24 hex digits: an event id" };

// Return {element, value(), set(text), check()} of a choice whose text is a value of `from`. `check`
// shows what is wrong with the entered text, and returns false if something is.
export function seek() {
  const kind = h("select", { id: "from", onchange: () => show() },
    h("option", { value: "0" }, "all objects"), h("option", { value: "now" }, "now"),
    h("option", { value: "time" }, "a time"), h("option", { value: "cursor" }, "a cursor"));
  const input = h("input", { id: "from-value", spellcheck: "false", oninput: () => input.setCustomValidity("") });
  const unit = h("span", { class: "soft" });
  const show = () => {
    const isTime = kind.value === "time";
    input.hidden = !HINTS[kind.value];
    input.type = isTime ? "datetime-local" : "text";
    input.step = isTime ? "1" : "";
    input.setAttribute("aria-label", isTime ? `Time to read from, ${zone()}` : "Cursor to read from");
    unit.textContent = isTime ? zone() : "";
    input.title = HINTS[kind.value] ?? "";
    input.placeholder = HINTS[kind.value] ?? "";
    input.required = !input.hidden;
    input.setCustomValidity("");
  };
  const value = () => {
    if (kind.value === "time") return String(new Date(input.value).getTime());
    return kind.value === "cursor" ? input.value.trim().toLowerCase() : kind.value;
  };
  return {
    element: h("span", { class: "seek" }, h("label", {}, "From ", kind), input, unit),
    value,
    set(text) {
      if (text === "now" || !/[1-9a-f]/.test(text)) kind.value = text === "now" ? "now" : "0";
      else kind.value = /^\d{1,13}$/.test(text) ? "time" : "cursor";
      show();
      if (kind.value === "time") input.value = localTime(Number(text));
      else input.value = kind.value === "cursor" ? text : "";
    },
    check() {
      const isCursor = kind.value === "cursor" && !/^[0-9a-f]{24}$/.test(value());
      input.setCustomValidity(isCursor ? "A cursor has 24 hex digits" : "");
      return input.hidden || input.reportValidity();
    },
  };
}
