// The feeds of the host: list, create and delete them (docs/PROTOCOL.md, section 23).

import { listFeeds, Refused, request } from "./api.js";
import { ask, button, card, element, fill, h, plain, table } from "./page.js";

export const title = "Feeds";

const SWITCHES = { "": undefined, on: true, off: false };
const NAME = "[a-z0-9][a-z0-9_.\\-]{0,62}";

export function mount(root, context) {
  const none = h("p", { class: "soft", id: "no-feeds", hidden: true },
    "None are shown, because the key has no rights for the whole host (",
    h("code", {}, "tidings keys create --host --role admin"), " creates one that has).");
  const form = newFeed();
  root.append(card("feeds-card", "Feeds of this host", none,
    table("feeds", "feeds-card-title", ["Name", "State", "Created", "By", "Actions"]),
    h("h3", { id: "new-title" }, "Create a feed"), form));
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
      each.created_at?.slice(0, 19).replace("T", " ") ?? "named by the host",
      each.by,
      () => (each.state === "live" ? [button("Delete", () => remove(each.feed), `Delete ${each.feed}`)] : []),
    ]);
  });

  // The request that the form makes, as it is previewed.
  function wanted() {
    const settings = {
      object_url: $("new-object-url").value.trim() || undefined,
      leave: SWITCHES[$("new-leave").value],
      ids_personal: SWITCHES[$("new-ids-personal").value],
      forget_after_days: $("new-forget-after").value ? Number($("new-forget-after").value) : undefined,
    };
    const body = Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== undefined));
    const name = $("new-name").value.trim();
    return { name, path: `/feeds/${encodeURIComponent(name)}`, body };
  }

  function preview() {
    const { name, path, body } = wanted();
    const text = JSON.stringify(body, null, 2);
    $("new-preview").textContent = plain(name) === name
      ? `PUT ${name ? path : "/feeds/NAME"}\nIf-None-Match: *\nContent-Type: application/json\n\n${text}`
      : "the name has characters that cannot be shown";
  }

  form.addEventListener("input", preview);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const { name, path, body } = wanted();
    const isDone = await context.attempt(() => request("PUT", path, { body, headers: { "if-none-match": "*" } }),
      `${name} is created.`, `${name} was not created`);
    if (isDone) form.reset();
    preview();
    look();
  });
  preview();

  async function remove(feed) {
    const given = await ask({
      title: `Delete: ${feed}`,
      says: "The feed and all its data are removed: log, state, archive, consumers, webhooks, keys and settings. Readers are disconnected. It cannot be undone.",
      fields: [
        { name: "confirm", label: "Name of the feed, to confirm", required: true, match: feed },
        { name: "force", label: "Delete it although it has consumers, webhooks or a relay", type: "checkbox" },
        { name: "tables", label: "Also remove its Iceberg tables", type: "checkbox" },
      ],
      action: "Delete",
    });
    if (!given) return;
    const query = new URLSearchParams({ confirm: feed });
    for (const name of ["force", "tables"]) if (given[name]) query.set(name, "true");
    await context.attempt(() => request("DELETE", `/feeds/${encodeURIComponent(feed)}?${query}`),
      `${feed} is deleted; its data are being removed.`, `${feed} was not deleted`);
    look();
  }
}

function newFeed() {
  const onOff = (id, off, on, not) => h("select", { id },
    h("option", { value: "" }, off), h("option", { value: "on" }, on), h("option", { value: "off" }, not));
  return h("form", { id: "new", class: "new", autocomplete: "off", "aria-labelledby": "new-title" },
    h("label", {}, "Name ", h("input", { id: "new-name", required: true, pattern: NAME, spellcheck: "false", title: "1 to 63 of a-z, 0-9, '-', '_', '.'; begins with a letter or digit" })),
    h("label", {}, "Link of objects ", h("input", { id: "new-object-url", placeholder: "address with {{type}} and {{id}}", spellcheck: "false" })),
    h("label", {}, "Removed parents ", onOff("new-leave", "as the host", "stored", "not stored")),
    h("label", {}, "Ids are personal ", onOff("new-ids-personal", "as the host", "yes", "no")),
    h("label", {}, "Erase deleted objects after ", h("input", { id: "new-forget-after", type: "number", min: "0", max: "3650", placeholder: "as the host" }), " days"),
    h("pre", { id: "new-preview", role: "region", "aria-label": "The request", tabindex: "0" }),
    h("div", { class: "actions" }, h("button", { type: "submit" }, "Create")));
}

export function unmount() {}
