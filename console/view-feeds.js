// The feeds of the host: list, create and delete them (docs/PROTOCOL.md, section 23).

import { listFeeds, Refused } from "./api.js";
import { act, form } from "./form.js";
import { button, card, element, fill, h, plain, table, when } from "./page.js";
import { feedDeletion, feedPlan, settingFields } from "./requests.js";

const NAME = {
  name: "name", label: "Name", required: true, aka: ["feed"], pattern: "[a-z0-9][a-z0-9_.\\-]{0,62}",
  title: "must be 1 to 63 of a-z, 0-9, '-', '_', '.', and start with a letter or digit",
};

export function mount(root, context) {
  const none = h("p", { class: "soft", id: "no-feeds", hidden: true },
    "None are shown, because the key has no rights for the whole host (",
    h("code", {}, "tidings keys create --host --role admin"), " creates one that has).");
  const create = card("new-card", "Create a feed");
  root.append(card("feeds-card", "Feeds of this host", none,
    table("feeds", "feeds-card-title", ["Name", "State", "Created", "By", "Actions"])),
  create);
  const $ = (id) => root.querySelector(`#${id}`);

  const look = context.every(async () => {
    const feeds = await listFeeds().catch((error) => {
      if (error instanceof Refused) return null;
      throw error;
    });
    none.hidden = feeds !== null;
    fill($("feeds"), feeds ?? [], ({ feed, number, state }) => `${feed} ${number} ${state}`, (each) => [
      () => [each.state === "live"
        ? button(each.feed, () => context.choose(each.feed), `Show ${each.feed}`, "plain")
        : element("span", "", plain(each.feed))],
      each.state,
      each.created_at ? when(each.created_at) : "named by the host",
      each.by,
      () => (each.state === "live" ? [button("Delete", () => remove(each.feed), `Delete ${each.feed}`)] : []),
    ]);
  });

  context.every(async () => {
    if ($("new")) return;
    const { components } = await context.request("GET", "/openapi.json");
    const fields = [NAME, ...settingFields(components.schemas.FeedSettings.properties)];
    const made = form({
      id: "new", title: "Create a feed", fields, plan: feedPlan, context,
      async done(answer, { name }) {
        context.say(`${name} is created.`);
        made.set(Object.fromEntries(fields.map((field) => [field.name, ""])));
        await look();
      },
    });
    if (!$("new")) create.append(made.element);
  });

  async function remove(feed) {
    await act(context, {
      title: `Delete: ${feed}`,
      says: "The feed and all its data are removed: log, state, archive, consumers, webhooks, keys and settings. Readers are disconnected. It cannot be undone.",
      fields: [
        { name: "confirm", label: "Name of the feed, to confirm", required: true, match: feed },
        { name: "force", label: "Delete it although it has consumers, webhooks or a relay", type: "checkbox" },
        { name: "tables", label: "Also remove its Iceberg tables", type: "checkbox" },
      ],
      action: "Delete",
      plan: (values) => feedDeletion(feed, values),
      done: `${feed} is deleted; its data are being removed.`,
      failed: `${feed} was not deleted`,
    });
    look();
  }
}
