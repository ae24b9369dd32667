// The requests that the forms make, and what the forms show of them before they are sent: the same
// request for curl, the command that does the same, and what will happen. Pure: no page, no network.

// An error of the field *field*, before anything is sent.
export class FieldError extends Error {
  constructor(field, rule) {
    super(rule);
    Object.assign(this, { field, rule });
  }
}

const all = (values, none) => (values?.length ? values.join(", ") : none);
const path = (...parts) => `/${parts.map(encodeURIComponent).join("/")}`;
const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

// --- values of fields ------------------------------------------------------------------------

// A list with commas between its values, or a JSON array if a value contains a comma.
export function listOf(text, field) {
  if (!text.trim().startsWith("[\"")) return text.split(",").map((each) => each.trim()).filter(Boolean);
  const values = parsed(text, field);
  if (!Array.isArray(values) || values.some((each) => typeof each !== "string")) {
    throw new FieldError(field, "must be a JSON array of strings if it begins with [\"");
  }
  return values.filter(Boolean);
}

// The same for a filter that is being read: a text that is not a JSON array is a list.
export function valuesOf(text) {
  try {
    return listOf(text);
  } catch {
    return text.split(",").map((each) => each.trim()).filter(Boolean);
  }
}

// The text that `listOf` reads as *values*.
export function listText(values) {
  const isPlain = (values ?? []).every((each) => !each.includes(",") && each === each.trim());
  const text = (values ?? []).join(",");
  return isPlain && !text.startsWith("[\"") ? text : JSON.stringify(values);
}

// The text of a JSON value in one line; undefined for an empty text. It is not written anew, because
// numbers would lose digits.
export function jsonOf(text, field) {
  if (!text.trim()) return undefined;
  parsed(text, field);
  return text.trim().replace(/\s*\n\s*/g, " ");
}

// The error contains the browser's reason.
function parsed(text, field) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new FieldError(field, `is not JSON: ${error.message}`);
  }
}

export function numberOf(text, field) {
  if (!text.trim()) return undefined;
  if (!/^\d+$/.test(text.trim())) throw new FieldError(field, "must be a whole number");
  return Number(text);
}

// Leave out what is not given: undefined, empty texts and lists, and false.
export const given = (values) => Object.fromEntries(Object.entries(values).filter(([, value]) =>
  value !== undefined && value !== "" && value !== false && !(Array.isArray(value) && !value.length)));

// --- what a form shows -----------------------------------------------------------------------

// A word of a shell command.
export const quoted = (word) =>
  (/^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

// The request for curl. *host* is the address of the host; a password is read from a variable.
export function curlText({ method, path: at, body, headers = {} }, { host, hasPassword }) {
  const all = { ...headers, ...(body !== undefined && { "Content-Type": "application/json" }) };
  return [
    `curl${method === "POST" && body !== undefined ? "" : ` -X ${method}`} ${quoted(host.replace(/\/$/, "") + at)}`,
    hasPassword && "-u \":$TIDINGS_PASSWORD\"",
    ...Object.entries(all).map(([name, value]) => `-H ${quoted(`${name}: ${value}`)}`),
    body !== undefined && `-d ${quoted(typeof body === "string" ? body : JSON.stringify(body))}`,
  ].filter(Boolean).join(" \\\n  ");
}

// The command with its *words*; it reads a password from the variable TIDINGS_PASSWORD.
export function commandText(words, { host, feed }, input = "") {
  const options = ["--url", host.replace(/\/$/, ""), ...(feed ? ["--feed", feed] : [])];
  const command = ["tidings", ...words, ...options].map(quoted).join(" ");
  return input ? `echo ${quoted(input)} |\n  ${command}` : command;
}

const option = (name, value) => (value === undefined || value === "" ? [] : [name, String(value)]);
const lists = (body) => ["types", "parents", "ids"].flatMap((name) =>
  (body[name]?.length ? [`--${name}`, listText(body[name])] : []));
const flag = (name, value) => (value ? [name] : []);

// The words of a command that changes an existing filter: an empty list removes a filter. The
// command cannot undo `--erasures`, and is then not shown.
function updating(words, existing, filter) {
  if (existing.erasures && !filter.erasures) return null;
  const removed = ["types", "parents", "ids"].filter((name) => existing[name] && !filter[name]);
  return [...words, "--update", ...removed.flatMap((name) => [`--${name}`, ""])];
}

// --- the forms -------------------------------------------------------------------------------
//
// A plan is what a form will do:
//
//   request     {method, path, body, headers}
//   words       of the command that does the same, or null if no command does
//   input       the standard input of the command
//   isOfHost    true if the command is for the host, and not for a feed
//   effect      one sentence
//   note        what to know before, for a name that exists
//   unused      names of fields that have no effect
//   changes     of what exists, as {name, before, after}
//   button      the text of the button

// *data* is the text of a JSON value.
export function postPlan(feed, { event, type, id, parents, tags, data, timestamp }) {
  const rest = JSON.stringify(given({ event, type, id, parents, tags, timestamp }));
  const body = data === undefined ? rest : `${rest.slice(0, -1)},"data":${data}}`;
  // The options of the command have no tags.
  const asText = tags?.length > 0;
  return {
    request: { method: "POST", path: `${path("feeds", feed)}/ops`, body, headers: { Prefer: "return=representation" } },
    words: asText ? ["post", "-"] : [
      "post", event, type, id,
      ...(parents ?? []).flatMap((parent) => ["--parent", parent]),
      ...option("--timestamp", timestamp),
      ...(data === undefined ? [] : ["--data", data]),
    ],
    input: asText ? body : "",
    effect: `Appends one event to ${feed}: ${event} of ${type}/${id}. Its clients, consumers and webhooks receive it, and it cannot be taken back.`,
  };
}

const filterOf = ({ types, parents, ids, erasures }) => given({ types, parents, ids, erasures });
const FILTER = { types: "every type", parents: "any parents", ids: "every id", erasures: "as delete" };

function part(body) {
  const named = Object.entries(filterOf(body)).filter(([name]) => name !== "erasures");
  return named.map(([name, values]) => `${name} ${values.join(", ")}`).join("; ") || "every event";
}

// What a change of *before* to *after* changes, as {name, before, after}.
export function changesOf(before, after, defaults) {
  const text = (value, none) => (Array.isArray(value) ? all(value, none) : value === true ? "yes" : value || none);
  return Object.entries(defaults)
    .map(([name, none]) => ({ name, before: String(text(before[name], none)), after: String(text(after[name], none)) }))
    .filter((each) => each.before !== each.after);
}

const STARTS = { oldest: "the oldest event that the feed keeps", now: "the next event", copy: "a copy of every object" };

// *existing* is the consumer of that name, if there is one: it gets the filter, and keeps its place.
export function consumerPlan(feed, values, existing) {
  const { name, from } = values;
  const filter = filterOf(values);
  const request = { method: "PUT", path: path("feeds", feed, "consumers", name), body: existing ? filter : given({ from, ...filter }) };
  const words = ["consumers", "create", name, ...lists(filter), ...flag("--erasures", filter.erasures)];
  if (!existing) {
    return {
      request: { ...request, headers: { "If-None-Match": "*" } },
      words: [...words, ...option("--from", from)],
      button: "Create",
      effect: `Creates the consumer ${name}, which starts with ${STARTS[from] ?? `the event after ${from}`} and receives ${part(filter)}. The feed keeps what it has not read.`,
    };
  }
  return {
    request,
    words: updating(words, existing, filter),
    button: `Change ${name}`,
    changes: changesOf(existing, filter, FILTER),
    note: `${name} exists already.`,
    unused: ["from"],
    effect: `Changes the filter of ${name}, which keeps its position. Its worker loses its lease and continues with the new filter.`,
  };
}

const HOOK = { url: "none", format: "cloudevents", attempts: 10, ...FILTER };

export function hookPlan(feed, values, existing) {
  const { name, url, from, format, attempts } = values;
  const filter = filterOf(values);
  const body = given({ url, format, attempts, ...(existing ? {} : { from }), ...filter });
  const words = ["hooks", "create", url, "--name", name, ...option("--format", format),
    ...option("--attempts", attempts), ...lists(filter), ...flag("--erasures", filter.erasures)];
  const request = { method: "PUT", path: path("feeds", feed, "hooks", name), body };
  if (!existing) {
    return {
      request: { ...request, headers: { "If-None-Match": "*" } },
      words: [...words, ...option("--from", from)],
      button: "Create",
      effect: `Sends ${part(filter)} to ${url}, starting with ${STARTS[from] ?? `the event after ${from}`}. After ${plural(attempts ?? 10, "failed attempt")} a message is parked. The signing secret is shown once.`,
    };
  }
  return {
    request,
    words: updating(words, existing, filter),
    button: `Change ${name}`,
    changes: changesOf(existing, body, HOOK),
    note: `${name} exists already.`,
    unused: ["from"],
    effect: `Changes ${name}, which keeps its position and its secret.`,
  };
}

// The place of keys: those of a feed, or with *ofHost* those of all feeds of the host.
const keysPath = (feed, ofHost, ...parts) => path("feeds", feed, "keys", ...parts) + (ofHost ? "?host=true" : "");

// *feeds* are prefixes of names, for a key of the host.
export function keyPlan(feed, { roles, types, parents, expires, rate, streams, label, feeds = [] }, { ofHost = false } = {}) {
  if (!roles.length) throw new FieldError("roles", "choose at least one role");
  const body = given({ roles, types, parents, expires, rate, streams, label, feeds });
  const where = !ofHost ? feed : feeds.length ? `all feeds whose names begin with ${feeds.join(" or ")}` : "all feeds of the host";
  const limits = [
    types.length && `the types ${types.join(", ")}`,
    parents.length && `the parents ${parents.join(", ")}`,
  ].filter(Boolean).join(" and ");
  return {
    request: { method: "POST", path: keysPath(feed, ofHost), body },
    words: ["keys", "create", ...flag("--host", ofHost), ...feeds.flatMap((each) => ["--feeds", each]), ...roles.flatMap((role) => ["--role", role]),
      ...types.flatMap((type) => ["--type", type]), ...parents.flatMap((parent) => ["--parent", parent]),
      ...option("--expires", expires), ...option("--rate", rate), ...option("--streams", streams), ...option("--label", label)],
    isOfHost: ofHost,
    effect: `Creates a key of ${where} with ${roles.length === 1 ? "the role" : "the roles"} ${roles.join(", ")}${limits ? `, for ${limits} only` : ""}, ${expires ? `valid for ${expires}` : "without an end"}. The key is shown once.`,
  };
}

// The fields of a form for the settings of a new feed, from their schemas in /openapi.json.
export const settingFields = (schemas) => Object.entries(schemas).filter(([, { type }]) => type !== "array")
  .map(([name, { type, enum: values = [], description: hint }]) => {
    const texts = type === "boolean" ? ["on", "off"] : values.filter(Boolean);
    const kind = { boolean: "switch", integer: "number" }[type] ?? (texts.length ? "select" : "text");
    const label = name[0].toUpperCase() + name.slice(1).replaceAll("_", " ");
    return { name, label, hint, kind, options: [["", "as the host"], ...texts.map((each) => [each, each])] };
  });

const optionOf = (name) => `--${name.replace(/_days$/, "").replaceAll("_", "-")}`; // has no unit
export function feedPlan({ name, ...settings }) {
  const set = Object.entries(settings).filter(([, value]) => ![undefined, ""].includes(value));
  return {
    request: {
      method: "PUT",
      path: path("feeds", name),
      body: Object.fromEntries(set),
      headers: { "If-None-Match": "*" },
    },
    words: ["feeds", "create", name, ...set.flatMap(([each, value]) => option(optionOf(each), { true: "on", false: "off" }[value] ?? value))],
    isOfHost: true, // the command has no --feed
    effect: `Creates the feed ${name}. Settings that are not given are those of the host.`,
  };
}

// --- actions ---------------------------------------------------------------------------------

// An action of an operator on a consumer: *id* is a parked message, or `all`.
export function actionPlan(feed, action, name, id, { why, by, position }) {
  const at = path("feeds", feed, "consumers", name);
  const reason = ["--why", why, "--by", by];
  if (action === "delete") return deletion(at, ["consumers", "delete", name], why, by);
  return {
    request: { method: "POST", path: `${at}/${action}`, body: given({ why, by, position, id }) },
    words: ["consumers", action, name, ...[id, position].filter(Boolean), ...reason],
  };
}

function deletion(at, words, why, by) {
  return {
    request: { method: "DELETE", path: `${at}?${new URLSearchParams({ why, by })}` },
    words: [...words, "--why", why, "--by", by],
  };
}

export const hookDeletion = (feed, name, { why, by }) =>
  deletion(path("feeds", feed, "hooks", name), ["hooks", "delete", name], why, by);

export const rotation = (feed, name) => ({
  request: { method: "POST", path: path("feeds", feed, "hooks", name, "rotate"), body: {} },
  words: ["hooks", "rotate", name],
});

export const revocation = (feed, id, { ofHost }) => ({
  request: { method: "POST", path: keysPath(feed, ofHost, id, "revoke"), body: {} },
  words: ["keys", "revoke", id, ...flag("--host", ofHost)],
  isOfHost: ofHost,
});

export const relayPlan = (feed, action) => ({
  request: { method: "POST", path: path("feeds", feed, "relay", action), body: {} },
  words: ["relays", action, feed],
  isOfHost: true,
});

export function feedDeletion(feed, { force, tables }) {
  const query = new URLSearchParams({ confirm: feed, ...(force && { force }), ...(tables && { tables }) });
  return {
    request: { method: "DELETE", path: `${path("feeds", feed)}?${query}` },
    words: ["feeds", "delete", feed, ...flag("--force", force), ...flag("--tables", tables)],
    isOfHost: true,
  };
}
