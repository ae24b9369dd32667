/* Post operations so that they are appended once, however often the request is sent. */

import { credentials, feedUrl } from "./addresses.js";
import { errorOfAnswer, Lost } from "./errors.js";
import { stringify } from "./numbers.js";
import { delayMs } from "./reader.js";
import { credentialsMode, send, sleep } from "./requests.js";

const ATTEMPTS_MAX = 8; // in two minutes, which is longer than a deployment

/*
 * Append *operations* (one, or an array of up to 1,000), together and in order; return their event
 * ids. The Idempotency-Key is random unless it is an option.
 */
export async function post(url, operations, options = {}) {
  const { feed = "main", signal, idempotencyKey = randomKey(), attemptsMax = ATTEMPTS_MAX } = options;
  const address = feedUrl(url, feed, "ops");
  credentialsMode(options); // throws now if it is wrong
  const body = stringify(operations);
  for (let attempt = 0; ; attempt++) {
    try {
      const headers = {
        "content-type": "application/json",
        "idempotency-key": idempotencyKey,
        prefer: "return=representation",
        ...(await credentials(options)),
      };
      return await idsOf(await send(address, { method: "POST", headers, body, signal }, options));
    } catch (error) {
      if (!(error instanceof Lost) || attempt + 1 >= attemptsMax) throw error;
      await sleep(Math.max(delayMs(attempt), error.afterMs), signal);
    }
  }
}

async function idsOf(answer) {
  if (!answer.ok) throw await errorOfAnswer(answer);
  const { ids } = await answer.json().catch(() => ({}));
  if (!Array.isArray(ids)) throw new Lost("the answer is not from a feed; check the address");
  return ids;
}

/* `crypto.randomUUID` exists only in secure contexts. */
function randomKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
