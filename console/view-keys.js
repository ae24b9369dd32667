// The keys of the feed (docs/PROTOCOL.md, section 17).

import { request } from "./api.js";
import { act, form, offer, reveal } from "./form.js";
import { button, card, fill, h, table, when } from "./page.js";
import { keyPlan, revocation } from "./requests.js";

const ROLES = [
  ["read", "read: receive events"],
  ["ingest", "ingest: post events"],
  ["consume", "consume: be the worker of named consumers"],
  ["erase", "erase: erase objects"],
  ["admin", "admin: administer the feed, with consume and erase"],
];
const FIELDS = [
  { name: "roles", label: "Roles", kind: "checks", options: ROLES, hint: "At most those of your own credential" },
  { name: "types", label: "Types", kind: "list", placeholder: "all, or a,b" },
  { name: "parents", label: "Parents", kind: "list", placeholder: "all, or x,y" },
  { name: "expires", label: "Valid for", placeholder: "without an end", hint: "For example 24h or 2160h" },
  { name: "rate", label: "Requests a second, at most", kind: "number", placeholder: "no limit" },
  { name: "streams", label: "Open streams, at most", kind: "number", placeholder: "40" },
  { name: "label", label: "Label", hint: "Who uses the key, and for what" },
];

const FEEDS = { name: "feeds", label: "Feeds", kind: "list", placeholder: "all, or prefixes of names" };

export function mount(root, context) {
  const { below } = context;
  const ofHost = context.params.get("scope") === "host";
  const scope = button(ofHost ? "Keys of this feed" : "Keys of the host",
    () => context.go("keys", { scope: ofHost ? "" : "host" }));
  const none = h("p", { class: "soft", hidden: true }, "There are none.");
  const made = card("new-key-card", "Create a key");
  root.append(card("keys-card", ofHost ? "Keys of the host" : `Keys of ${context.feed}`, h("div", { class: "actions" }, scope), none,
    table("keys", "keys-card-title", ["Id", "State", "Roles", "Restricted to", "Until", "Created by", "Label", "Actions"])), made);

  const key = form({
    id: "new-key",
    title: "Create a key",
    fields: ofHost ? [...FIELDS, FEEDS] : FIELDS,
    plan: (values) => keyPlan(context.feed, values, { ofHost }),
    context,
    async done(answer) {
      context.say(`The key ${answer.id} is created.`);
      reveal({
        title: `The key ${answer.id}`,
        says: "Give it to its user. It is a password, and is not shown again.",
        label: "Key",
        secret: answer.key,
      });
      await look();
    },
  });
  const look = context.every(async () => {
    if (!(await context.may("admin"))) return;
    const { keys } = await request("GET", below("keys") + (ofHost ? "?host=true" : ""));
    if (!ofHost) offerRoles();
    none.hidden = keys.length > 0;
    fill(root.querySelector("#keys"), keys, ({ id, state }) => `${id} ${state}`, (each) => [
      each.id,
      each.state,
      each.roles.join(", "),
      restriction(each),
      each.expires_at ? when(each.expires_at) : "never",
      each.made_by,
      each.label,
      () => (each.state === "holds" ? [button("Revoke", () => revoke(each.id), `Revoke ${each.id}`)] : []),
    ]);
  });

  offer(made, context, "admin", "create keys", key.element);

  // The host gives a key no other roles than its creator has.
  async function offerRoles() {
    const access = await context.access();
    const own = access?.roles.map(({ role }) => role) ?? ROLES.map(([role]) => role);
    for (const input of key.element.querySelectorAll("fieldset input")) input.disabled = !own.includes(input.value);
  }

  async function revoke(id) {
    await act(context, {
      title: `Revoke: ${id}`,
      says: `${id} is refused within five seconds, and clients that are connected with it are disconnected. It cannot be undone.`,
      action: "Revoke",
      plan: () => revocation(context.feed, id, { ofHost }),
      done: `${id} is revoked.`,
      failed: `${id} was not revoked`,
    });
    look();
  }
}

function restriction({ feeds, types, parents }) {
  const named = Object.entries({ feeds, types, parents }).filter(([, values]) => values);
  return named.map(([name, values]) => `${name} ${values.join(", ")}`).join("; ") || (feeds === undefined ? "all of the feed" : "all feeds");
}
