// A form that shows what it will do: the request, the command that does the same, and one sentence.
//
// A view gives the fields and a plan (requests.js); the form checks and sends the request, and shows
// an error of the host next to the field that the host names.

import { address, isSignedIn, Refused, Unreached } from "./api.js";
import { ask, copyButton, h, isPrintable, plain, say } from "./page.js";
import { commandText, curlText, FieldError, jsonOf, listOf, numberOf } from "./requests.js";

const SWITCHES = { "": undefined, on: true, off: false };

// How the value of a field is read, by its kind.
const READ = {
  text: (input) => input.value.trim(),
  select: (input) => input.value,
  list: (input, name) => listOf(input.value, name),
  json: (input, name) => jsonOf(input.value, name),
  number: (input, name) => numberOf(input.value, name),
  switch: (input) => SWITCHES[input.value],
  check: (input) => input.checked,
  checks: (group) => [...group.querySelectorAll("input:checked")].map(({ value }) => value),
};

// Return {element, set, refresh, focus}: the form; `set(values)` fills fields by name, `refresh()` plans
// again when something else than the fields has changed.
//
//   fields            {name, label, kind, hint, options, aka, value, ...}; `options` are [value, text]
//                     of a `select`, `switch` or `checks`, `aka` other names that the host has for the
//                     field; the rest are attributes of the input
//   plan(values)      a plan (requests.js); a required field that is empty has its name in capitals
//   submit            the text of the button, unless the plan has one
//   done(answer, values, plan)
//                     called after the request succeeded
//   onRefused()       called after it failed, for example to see what exists
export function form({ id, title, fields, plan, context, submit = "Create", done, onRefused }) {
  const parts = fields.map((field) => fieldPart(id, field));
  const note = h("p", { class: "note", role: "status", hidden: true });
  const effect = h("p", { id: `${id}-effect` });
  const changes = h("ul", { class: "changes" });
  const same = requestBox(id, context);
  const error = h("p", { id: `${id}-error`, class: "error", role: "alert", hidden: true });
  const button = h("button", { id: `${id}-do`, class: "main", type: "submit" }, submit);
  const element = h("form", { id, class: "form", novalidate: true, autocomplete: "off", "aria-label": title },
    parts.map((part) => part.element),
    h("div", { class: "effect", role: "group", "aria-label": "What will happen" }, note, effect, changes, same.element),
    error, h("div", { class: "actions" }, button));
  let planned = null;

  // Return the values of the fields; an error is thrown with all fields that are wrong.
  function values({ strict = false } = {}) {
    const found = {};
    const wrong = [];
    for (const { field: { name, kind = "text", required }, input, title: rule } of parts) {
      try {
        if (strict && input.validity && !input.validity.valid) {
          throw new FieldError(name, input.validity.valueMissing ? "is required" : rule || input.validationMessage);
        }
        found[name] = READ[kind](input, name);
        if (required && found[name] === "") found[name] = name.toUpperCase();
      } catch (failure) {
        wrong.push(asFieldError(failure));
      }
    }
    if (wrong.length) throw Object.assign(new Error(), { wrong });
    return found;
  }

  // Plan with the present values, and show the plan; null if a field is wrong.
  function refresh({ strict = false } = {}) {
    try {
      planned = plan(values({ strict }));
    } catch (failure) {
      planned = null;
      const wrong = failure.wrong ?? [asFieldError(failure)];
      for (const part of strict ? parts : []) {
        part.showError(wrong.find(({ field }) => field === part.field.name)?.rule ?? "");
      }
      show({ effect: "Complete or correct the fields to see what will happen.", button: button.textContent });
      return null;
    }
    show(planned);
    return planned;
  }

  function show(wanted) {
    const { effect: text, note: noted = "", changes: changed, button: named = submit } = wanted;
    say(note, noted);
    effect.textContent = changed?.length === 0 ? "Nothing would change." : plain(text);
    changes.replaceChildren(...(changed ?? []).map(({ name, before, after }) =>
      h("li", {}, h("code", {}, name), ` ${plain(before)} → ${plain(after)}`)));
    same.show(wanted);
    for (const { field, input } of parts) input.disabled = wanted.unused?.includes(field.name) ?? false;
    if (button.textContent !== named) button.textContent = plain(named);
  }

  async function send() {
    for (const part of parts) part.showError("");
    say(error, "");
    const wanted = refresh({ strict: true });
    const isSame = wanted?.changes?.length === 0;
    if (isSame) say(error, "Nothing would change.");
    if (!wanted || isSame) return focusOnError();
    const sent = values();
    element.setAttribute("aria-busy", "true");
    try {
      const { method, path, body, headers } = wanted.request;
      const answer = await context.request(method, path, { body, headers });
      await done(answer, sent, wanted);
    } catch (failure) {
      await onRefused?.();
      showRefusal(failure);
    } finally {
      element.removeAttribute("aria-busy");
    }
  }

  function showRefusal(failure) {
    const isRefused = failure instanceof Refused;
    if (!isRefused && !(failure instanceof Unreached)) throw failure;
    const named = isRefused ? failure.field.replace(/\[\d+\]$/, "").split(".").pop() : "";
    const part = parts.find(({ field }) => field.name === named || field.aka?.includes(named));
    if (part) part.showError(failure.rule);
    else say(error, isRefused ? failure.message : "The host was not reached; nothing is known of the request.");
    focusOnError();
  }

  function focusOnError() {
    parts.find((part) => !part.error.hidden)?.focus();
  }

  element.addEventListener("input", () => {
    say(error, "");
    refresh();
  });
  for (const part of parts) {
    part.element.addEventListener("input", () => part.showError(""));
    // When a person leaves a field, and not with each letter.
    part.element.addEventListener("change", () => {
      try {
        READ[part.field.kind ?? "text"](part.input, part.field.name);
      } catch (failure) {
        part.showError(asFieldError(failure).rule);
      }
    });
  }
  element.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!element.hasAttribute("aria-busy")) send();
  });

  const made = {
    element,
    refresh,
    set(wanted) {
      for (const { field, write } of parts) if (field.name in wanted) write(wanted[field.name]);
      for (const part of parts) part.showError("");
      say(error, "");
      refresh();
    },
    focus: () => parts[0].focus(),
  };
  refresh();
  return made;
}

function asFieldError(failure) {
  if (failure instanceof FieldError) return failure;
  throw failure;
}

// The label, input, hint and error of a field.
function fieldPart(id, field) {
  const { name, label, kind = "text", hint, options = [], aka, value, ...attributes } = field;
  const at = `${id}-${name}`;
  const shown = h("p", { id: `${at}-error`, class: "error", role: "alert", hidden: true });
  const described = [hint && `${at}-hint`, `${at}-error`].filter(Boolean).join(" ");
  const common = { id: at, "aria-describedby": described, ...attributes };
  const text = { spellcheck: "false", ...(value !== undefined && { value }) };
  const hinted = hint ? h("p", { id: `${at}-hint`, class: "soft" }, hint) : null;
  const input = {
    select: () => h("select", common, options.map(([each, says]) => h("option", { value: each, selected: each === value }, says))),
    json: () => h("textarea", { rows: "4", ...common, ...text }),
    check: () => h("input", { type: "checkbox", ...common }),
    number: () => h("input", { inputmode: "numeric", ...common, ...text }),
    checks: () => h("fieldset", { id: at, "aria-describedby": described }, h("legend", {}, label),
      options.map(([each, says]) => h("label", { class: "check" }, h("input", { type: "checkbox", value: each }), says))),
  };
  input.switch = input.select;
  const made = (input[kind] ?? (() => h("input", { ...common, ...text })))();
  const labelled = kind === "checks" ? [made]
    : kind === "check" ? [h("label", { class: "check" }, made, label)]
      : [h("label", { for: at }, label), made];
  return {
    field: { name, kind, aka, required: attributes.required },
    title: attributes.title,
    input: made,
    error: shown,
    element: h("div", { class: kind === "json" ? "field wide" : "field" }, labelled, hinted, shown),
    focus: () => (kind === "checks" ? made.querySelector("input") : made).focus(),
    showError(rule) {
      say(shown, rule);
      if (rule) made.setAttribute("aria-invalid", "true");
      else made.removeAttribute("aria-invalid");
    },
    write(wanted) {
      if (kind === "check") made.checked = wanted === true;
      else if (kind === "checks") {
        for (const each of made.querySelectorAll("input")) each.checked = wanted.includes(each.value);
      } else made.value = wanted ?? "";
    },
  };
}

// The request of a plan for curl, and the command that does the same.
function requestBox(id, context) {
  const curl = preview(`${id}-curl`, "The request, for curl");
  const command = preview(`${id}-command`, "The same by command");
  const password = h("p", { class: "soft", hidden: true }, "Your password or key is read from the variable ", h("code", {}, "TIDINGS_PASSWORD"), ".");
  return {
    element: h("div", { class: "same" }, curl.element, command.element, password),
    show(plan) {
      const { request, words, isOfHost } = plan;
      const place = { host: address("/"), feed: isOfHost ? "" : context.feed, hasPassword: isSignedIn() };
      curl.show(request ? curlText(request, place) : "");
      command.show(words ? commandText(words, place, plan.input) : "");
      password.hidden = !request || !place.hasPassword;
    },
  };
}

// The fields of an action that is kept with its reason.
export const REASON = [
  { name: "why", label: "Why", required: true },
  { name: "by", label: "Your name", required: true, autocomplete: "username" },
];
export const KEPT = "Reason and name are kept with the action for a year.";

// Ask a person (`ask` of page.js), and then send the request of *plan(values)*, which the dialog
// shows. Return the answer, or null; the shell shows *done* or *failed*.
export async function act(context, { plan, done, failed, ...dialog }) {
  const same = requestBox("dialog", context);
  const extra = h("details", {}, h("summary", {}, "The request and the command"), same.element);
  const values = await ask({ ...dialog, extra, onInput: (given) => same.show(plan(given)) });
  if (!values) return null;
  const { method, path, body, headers } = plan(values).request;
  let answer = null;
  await context.attempt(async () => (answer = await context.request(method, path, { body, headers })), done, failed);
  return answer;
}

function preview(id, name) {
  const text = h("pre", { id, role: "region", "aria-label": name, tabindex: "0" });
  const element = h("div", { class: "preview", hidden: true },
    h("p", { class: "soft" }, name, " ", copyButton(name.toLowerCase(), () => text.textContent)), text);
  return {
    element,
    show(wanted) {
      text.textContent = isPrintable(wanted) ? wanted : "It has characters that cannot be shown.";
      element.hidden = !wanted;
    },
  };
}

// Put *parts* into *root* if the credential has *role* on the whole feed, or else say which role is
// missing for *what*. A key that is restricted to a part of the feed may post to this part.
export async function offer(root, context, role, what, ...parts) {
  const access = await context.access();
  const own = access?.roles.find((each) => each.role === role);
  const limits = ["types", "parents"].filter((name) => own?.[name]).map((name) => `${name} ${own[name].join(", ")}`);
  if (access && (!own || (limits.length && role !== "ingest"))) {
    const has = access.roles.map((each) => each.role).join(", ");
    root.append(h("p", { class: "soft" },
      `To ${what}, sign in with a credential that has the role ${role}${own ? " on the whole feed" : ""}; `
      + `${has ? `yours has ${has}${limits.length ? ` for ${limits.join(" and ")} only` : ""}` : "you have none"}.`));
    return false;
  }
  if (limits.length) root.append(h("p", { class: "soft" }, plain(`Your key is restricted to the ${limits.join(" and ")}.`)));
  root.append(...parts);
  return true;
}

// Show a secret that is shown once, until a person closes the dialog.
export function reveal({ title, says, label, secret, warnings = [] }) {
  const input = h("input", { id: "secret", readonly: true, value: secret, spellcheck: "false", class: "mono" });
  const dialog = h("dialog", { id: "reveal", "aria-labelledby": "reveal-title", "aria-describedby": "reveal-says" },
    h("form", { method: "dialog" },
      h("h2", { id: "reveal-title" }, plain(title)),
      warnings.map((each) => h("p", { class: "error", role: "alert" }, plain(each))),
      h("p", { id: "reveal-says" }, says),
      h("label", { for: "secret" }, label), input,
      h("div", { class: "actions" }, copyButton(label.toLowerCase(), () => secret), h("button", { type: "submit" }, "Close"))));
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.showModal();
  input.select();
}
