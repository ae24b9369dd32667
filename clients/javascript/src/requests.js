/* Requests and waiting. */

import { Lost } from "./errors.js";
import { parse } from "./numbers.js";

const CREDENTIALS = ["omit", "same-origin", "include"];

/* Return the option `credentials` of `fetch`; it throws if the value is wrong. */
export function credentialsMode({ credentials = "omit" }) {
  if (CREDENTIALS.includes(credentials)) return credentials;
  throw new TypeError(`credentials must be one of ${CREDENTIALS.join(", ")}`);
}

/*
 * Like `fetch`, but a failure of the network rejects with `Lost`. Without the credentials that a browser
 * remembers, it does not ask its user for a password after a 401, and sends no cookies to other sites.
 */
export async function send(address, init, options = {}) {
  const credentials = credentialsMode(options);
  return fetch(address, { cache: "no-store", credentials, ...init }).catch((error) =>
    lose(error, init?.signal),
  );
}

/* Return the body of *answer*; reject with `Lost` if the connection breaks. */
export async function textOf(answer, signal) {
  return answer.text().catch((error) => lose(error, signal));
}

/* Return the JSON value of *text*; a page of a proxy instead of it is not an answer of a feed. */
export function parsed(text) {
  try {
    return parse(text);
  } catch {
    return notOfFeed();
  }
}

export function notOfFeed() {
  throw new Lost("the answer is not from a feed; check the address");
}

function lose(error, signal) {
  signal?.throwIfAborted();
  throw new Lost(reasonOf(error));
}

/* Return the reason of a failure of `fetch`; Node.js has it in the cause. */
export const reasonOf = (error) => String(error.cause?.message ?? error.message);

/* Wait; reject with the signal's reason if it is aborted. */
export function sleep(ms, signal) {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const abort = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, ms);
    signal?.addEventListener("abort", abort, { once: true });
  });
}
