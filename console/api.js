// Requests to the host of this page, with the password or key of the person at it.

import { withFallback } from "./client/fallback.js";
import { parse } from "./client/numbers.js";
import { overSocket } from "./client/socket.js";
import { overStream } from "./client/stream.js";

// The host may be below a path, so all addresses are relative to the folder above the page's own.
const HOST = new URL("../", import.meta.url);

// Kept for this tab, until it is closed or the person signs out.
const STORE = `tidings-console-sign-in ${HOST.pathname}`;
const credential = { user: "", secret: "", ...kept() };

function kept() {
  try {
    return JSON.parse(sessionStorage.getItem(STORE));
  } catch {
    return null;
  }
}

export function signIn(user, secret) {
  Object.assign(credential, { user, secret });
  try {
    if (secret) sessionStorage.setItem(STORE, JSON.stringify(credential));
    else sessionStorage.removeItem(STORE);
  } catch {
    // A browser that keeps nothing asks again after a reload.
  }
}

export const signOut = () => signIn("", "");

export const isSignedIn = () => credential.secret !== "";

// The password of a WebSocket, read whenever it connects.
export const secret = () => credential.secret;

export function address(path) {
  return new URL(path.replace(/^\//, ""), HOST).href;
}

export const socketAddress = () => address("/ws").replace(/^http/, "ws");

// The transport of a reader: a WebSocket, or an event stream where it does not pass.
export const transport = (choice) =>
  withFallback(overSocket(socketAddress(), choice), overStream(address(""), choice));

// An answer whose status is not 2xx. *field* is the field of the request that the host names.
export class Refused extends Error {
  constructor(status, { code = "", field = "", rule, message }) {
    super(field ? `${field}: ${rule}` : rule ?? message ?? String(status));
    Object.assign(this, { status, code, field, rule: rule ?? message ?? "" });
  }
}

// The host did not answer.
export class Unreached extends Error {}

// Send a request; return the answer, whatever its status, or throw `Unreached`. The
// header keeps the browser's own dialog for passwords closed (docs/PROTOCOL.md, 10.5).
export async function send(method, path, { body, headers = {}, signal } = {}) {
  const hasBody = body !== undefined;
  const { user, secret: password } = credential;
  const basic = new TextEncoder().encode(`${user}:${password}`);
  return fetch(address(path), {
    method,
    headers: {
      "x-requested-with": "tidings-console",
      ...(password && { authorization: `Basic ${btoa(String.fromCharCode(...basic))}` }),
      ...(hasBody && { "content-type": "application/json" }),
      ...headers,
    },
    body: hasBody && typeof body !== "string" ? JSON.stringify(body) : body,
    cache: "no-store",
    credentials: "same-origin", // a proxy may have a session of its own
    signal,
  }).catch(() => {
    throw new Unreached("the host was not reached");
  });
}

// Return the JSON answer to a request; throw `Refused` if its status is not 2xx.
export async function request(method, path, options) {
  const answer = await send(method, path, options);
  const said = await answer.text().then(parse).catch(() => ({}));
  if (answer.ok) return said;
  throw errorOf(answer, said);
}

// Return the error of an answer with the JSON *said*, which is null if it has none.
export function errorOf(answer, said) {
  const error = said?.error ?? {};
  return new Refused(answer.status, typeof error === "string" ? { message: error } : error);
}

// Wait for *answer*; null if the host has no such route or object (a stage calls no webhooks).
export async function unlessMissing(answer) {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof Refused && (error.status === 404 || error.status === 501)) return null;
    throw error;
  }
}

const PAGES_MAX = 20; // of 100 feeds each; a list of 2,000 names is long enough for a page

// Return the records of the feeds that the credential permits (docs/PROTOCOL.md, 23.5).
export async function listFeeds(wanted = {}) {
  const feeds = [];
  let after = "";
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const query = new URLSearchParams({ ...wanted, ...(after && { after }) });
    const answer = await request("GET", `/feeds?${query}`);
    feeds.push(...answer.feeds);
    after = answer.next;
    if (!after) break;
  }
  return feeds;
}
