// Requests to the host of this page, with a password or key.

import { credentials } from "./client/addresses.js";

export class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    Object.assign(this, { status, code });
  }
}

// Return the JSON answer to a request; throw `Refused` if its status is not 2xx.
export async function request(method, path, options = {}) {
  const { secret = "", body, headers = {}, cookies = "same-origin" } = options;
  const hasBody = body !== undefined;
  const answer = await fetch(path, {
    method,
    headers: { ...(await credentials({ password: secret })), ...(hasBody && { "content-type": "application/json" }), ...headers },
    body: hasBody ? JSON.stringify(body) : undefined,
    cache: "no-store",
    credentials: cookies,
  });
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok) {
    const { code, field, rule, message } = said.error ?? {};
    const text = field ? `${field}: ${rule}` : rule ?? message ?? String(answer.status);
    throw new Refused(answer.status, code ?? "", text);
  }
  return said;
}

const PAGES_MAX = 20; // of 100 feeds each; a list of 2,000 names is long enough for a page

// Return the records of the feeds that the credential permits (docs/PROTOCOL.md, 23.5). Without
// cookies, the browser does not ask for a password after a 401.
export async function listFeeds(secret, wanted = {}) {
  const feeds = [];
  let after = "";
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const query = new URLSearchParams({ ...wanted, ...(after && { after }) });
    const answer = await request("GET", `/feeds?${query}`, { secret, cookies: "omit" });
    feeds.push(...answer.feeds);
    after = answer.next;
    if (!after) break;
  }
  return feeds;
}

// Fill a <datalist> with names of feeds when the input that it belongs to gets the focus. Without a
// list, for example if the key permits only one feed, the name can still be typed.
export function offerFeeds(input, options, secret) {
  input.addEventListener("focus", async () => {
    const feeds = await listFeeds(secret()).catch(() => []);
    const names = feeds.filter(({ state }) => state === "live").map(({ feed }) => feed);
    options.replaceChildren(...names.map((name) => new Option(name)));
  });
}
