/* The addresses of a feed, and the part of the feed that a consumer subscribes to. */

export const LISTS = ["types", "parents", "ids"];
export const SWITCHES = ["leave", "erasures"];

/* Return the address below which the paths of all feeds are; a final `/ops` is removed. */
function baseOf(url) {
  const base = new URL(url);
  if (!/^https?:$/.test(base.protocol)) throw new TypeError(`${url} must begin with http: or https:`);
  if (base.username || base.password) {
    throw new TypeError("an address must not contain a user or password, which would be logged");
  }
  base.search = base.hash = "";
  base.pathname = base.pathname.replace(/\/+$/, "").replace(/\/ops$/, "");
  return base.href.replace(/\/+$/, "");
}

/* Return the address of *path* of *feed*, with the *query* parameters that are not undefined. */
export function feedUrl(url, feed, path, query = {}) {
  const address = new URL(`${baseOf(url)}/feeds/${encodeURIComponent(feed)}/${path}`);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined) address.searchParams.set(name, value);
  }
  return address.href;
}

export function socketUrl(url) {
  return `${baseOf(url).replace(/^http/, "ws")}/ws`;
}

/* A list in an address: with commas, or as JSON if a value contains one (PROTOCOL 7.2). */
export function listText(values) {
  const kept = values.filter((value) => value !== "");
  const text = kept.join(",") || ",";
  const isPlain = kept.every((value) => !value.includes(",")) && !text.startsWith('["');
  return isPlain ? text : JSON.stringify(kept);
}

/* Return the lists of *options* that select anything; an empty list selects everything. */
export function listsOf(options) {
  return LISTS.filter((name) => options[name]?.length).map((name) => [name, options[name]]);
}

export const switchesOf = (options) => SWITCHES.filter((name) => options[name]);

/* The password or key of *options*, which may be a function that returns it. */
export async function passwordOf({ password }) {
  return (typeof password === "function" ? await password() : password) ?? "";
}

/* The header for a password or key (10.2); it is UTF-8 in base64. */
export async function credentials(options) {
  const password = await passwordOf(options);
  if (!password) return {};
  const bytes = new TextEncoder().encode(`:${password}`);
  return { authorization: `Basic ${btoa(String.fromCharCode(...bytes))}` };
}
