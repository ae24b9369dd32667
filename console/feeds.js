// The feeds of the host on the desk: list, create and delete them (docs/PROTOCOL.md, section 23).

import { listFeeds, request } from "./api.js";
import { element, plain } from "./list.js";

const $ = (id) => document.getElementById(id);
const SWITCHES = { "": undefined, on: true, off: false };

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

// Connect the card. *secret* returns the key, *open* shows a feed, *say* a notice or a trouble.
export function feedsCard({ secret, open, say, fill, button }) {
  let doomed = "";

  async function look() {
    const feeds = await listFeeds(secret()).catch(() => null);
    $("no-feeds").hidden = feeds !== null;
    fill($("feeds"), feeds ?? [], ({ feed, number, state }) => `${feed} ${number} ${state}`, (each) => [
      () => [each.state === "live"
        ? button(each.feed, () => open(each.feed), `Show ${each.feed}`, "plain")
        : element("span", "", plain(each.feed))],
      each.state,
      each.created_at?.slice(0, 19).replace("T", " ") ?? "named by the host",
      each.by,
      () => (each.state === "live" ? [button("Delete", () => ask(each.feed), `Delete ${each.feed}`)] : []),
    ]);
  }

  async function attempt(does, done, failed) {
    try {
      await does();
      say("trouble", "");
      say("notice", done);
    } catch (error) {
      say("notice", "");
      say("trouble", `${failed}: ${error.message}`);
    }
    await look();
  }

  function ask(feed) {
    doomed = feed;
    $("delete-title").textContent = plain(`Delete: ${feed}`);
    $("delete-name").value = "";
    $("delete-force").checked = false;
    $("delete-tables").checked = false;
    $("delete-do").disabled = true;
    $("delete").showModal();
  }

  $("new").addEventListener("input", preview);
  $("new").addEventListener("submit", (event) => {
    event.preventDefault();
    const { name, path, body } = wanted();
    const sent = { secret: secret(), body, headers: { "if-none-match": "*" } };
    attempt(async () => {
      await request("PUT", path, sent);
      $("new").reset();
      preview();
    }, `${name} is created.`, `${name} was not created`);
  });
  $("delete-name").addEventListener("input", () => {
    $("delete-do").disabled = $("delete-name").value !== doomed;
  });
  $("delete-form").addEventListener("submit", (event) => {
    if (event.submitter?.value !== "do" || $("delete-name").value !== doomed) return;
    const query = new URLSearchParams({ confirm: doomed });
    for (const name of ["force", "tables"]) if ($(`delete-${name}`).checked) query.set(name, "true");
    const path = `/feeds/${encodeURIComponent(doomed)}?${query}`;
    attempt(
      () => request("DELETE", path, { secret: secret() }),
      `${doomed} is deleted; its data are being removed.`,
      `${doomed} was not deleted`,
    );
  });
  preview();
  return look;
}
