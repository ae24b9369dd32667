/* Requests and waiting. */

import { Lost } from "./errors.js";

/*
 * Like `fetch`, but a failure of the network rejects with `Lost`. Without the credentials that a browser
 * remembers, it does not ask its user for a password after a 401.
 */
export async function send(address, init) {
  return fetch(address, { cache: "no-store", credentials: "omit", ...init }).catch((error) =>
    lose(error, init?.signal),
  );
}

/* Return the body of *answer*; reject with `Lost` if the connection breaks. */
export async function textOf(answer, signal) {
  return answer.text().catch((error) => lose(error, signal));
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
