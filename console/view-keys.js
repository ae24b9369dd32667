// The keys of the feed (docs/PROTOCOL.md, section 17).

import { request } from "./api.js";
import { act } from "./form.js";
import { button, card, fill, h, table } from "./page.js";
import { revocation } from "./requests.js";

export const title = "Keys";

export function mount(root, context) {
  const { below } = context;
  const none = h("p", { class: "soft", hidden: true },
    "The feed has none: ", h("code", {}, "tidings keys create"), " creates one.");
  root.append(card("keys-card", "Keys", none,
    table("keys", "keys-card-title", ["Id", "State", "Roles", "Restricted to", "Until", "Created by", "Label", "Actions"])));

  const look = context.every(async () => {
    const { keys } = await request("GET", below("keys"));
    none.hidden = keys.length > 0;
    fill(root.querySelector("#keys"), keys, ({ id, state }) => `${id} ${state}`, (each) => [
      each.id,
      each.state,
      each.roles.join(", "),
      restriction(each),
      each.expires_at ?? "never",
      each.made_by,
      each.label,
      () => (each.state === "holds" ? [button("Revoke", () => revoke(each.id), `Revoke ${each.id}`)] : []),
    ]);
  });

  async function revoke(id) {
    await act(context, {
      title: `Revoke: ${id}`,
      says: `${id} is refused within five seconds, and clients that are connected with it are disconnected. It cannot be undone.`,
      action: "Revoke",
      plan: () => revocation(context.feed, id),
      done: `${id} is revoked.`,
      failed: `${id} was not revoked`,
    });
    look();
  }
}

function restriction({ types, parents }) {
  const named = Object.entries({ types, parents }).filter(([, values]) => values);
  return named.map(([name, values]) => `${name} ${values.join(", ")}`).join("; ") || "all of the feed";
}

export function unmount() {}
