// The clients that are connected to the feed (docs/PROTOCOL.md, 9.11).

import { unlessMissing } from "./api.js";
import { age, card, fill, h, number, say, table, when } from "./page.js";
import { listText } from "./requests.js";

export const title = "Clients";

export function mount(root, context) {
  const count = h("p", { class: "soft", id: "clients-count" });
  root.append(card("clients-card", "Connected clients", count, table("clients", "clients-card-title",
    ["Transport", "Connected for", "Key", "Filter", "Sent up to page", "Pages behind", "Program"])));

  context.every(async () => {
    const found = await unlessMissing(context.request("GET", context.below("clients")));
    const clients = (found?.clients ?? []).map((each, at) => ({ ...each, at: `${at} ${each.since} ${each.principal}` }));
    say(count, !found ? "This host does not list its clients."
      : `${number(found.total)} connected${found.total > clients.length ? `, of which ${clients.length} are shown` : ""}.`);
    fill(root.querySelector("#clients"), clients, ({ at }) => at, (each) => [
      each.transport,
      each.since ? { ...when(each.since), ...age(Date.now() - Date.parse(each.since)) } : "unknown",
      each.principal ?? "none",
      filterText(each.filter),
      known(each.page),
      known(each.lag_pages),
      each.user_agent ?? "unknown",
    ]);
  });
}

const known = (value) => value ?? "unknown";

function filterText(filter) {
  const parts = Object.entries(filter).map(([name, value]) =>
    (Array.isArray(value) ? `${name} ${listText(value) || "none"}` : name));
  return parts.join("; ") || "every event";
}

export function unmount() {}
