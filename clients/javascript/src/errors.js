/* What can go wrong, and whether another attempt helps. */

const RETRIED_STATUS = [408, 425, 429];
const RETRIED_CODES = ["unavailable", "too_many_requests"];
const AFTER_MS_MAX = 32000; // the longest delay that a server can ask for
const MESSAGE_CHARS_MAX = 300; // an answer may be the HTML page of a proxy

/* A final answer: the server would give it again. `status` is 0 on a WebSocket. */
export class Refused extends Error {
  name = "Refused";

  constructor(message, { status = 0, code = "" } = {}) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/*
 * The connection failed or ended. `afterMs` is how long the server asks the client to wait.
 * `isHandshake`: a WebSocket ended before its first message.
 */
export class Lost extends Error {
  name = "Lost";

  constructor(message, { afterMs = 0, isPlanned = false, isHandshake = false } = {}) {
    super(message);
    this.afterMs = afterMs;
    this.isPlanned = isPlanned;
    this.isHandshake = isHandshake;
  }
}

/* The error for a message `{"error": {...}}` of a WebSocket. */
export function errorOfMessage({ code, message }) {
  const text = String(message ?? "refused");
  return RETRIED_CODES.includes(code) ? new Lost(code) : new Refused(text, { code: String(code ?? "") });
}

/* The error for an HTTP answer that is not a success. */
export async function errorOfAnswer(answer) {
  const text = await answer.text().catch(() => "");
  const { code = "", message } = errorFields(text);
  const { status } = answer;
  const found = String(message ?? text).slice(0, MESSAGE_CHARS_MAX).trim();
  if (status >= 300 && status < 500 && !RETRIED_STATUS.includes(status)) {
    return new Refused(found || `the server answered ${status}`, { status, code: String(code) });
  }
  const after = answer.headers.get("retry-after") ?? "";
  const afterMs = /^\d+$/.test(after) ? Math.min(Number(after) * 1000, AFTER_MS_MAX) : 0;
  return new Lost(`the server answered ${status}${found && `: ${found}`}`, { afterMs });
}

function errorFields(text) {
  try {
    return JSON.parse(text).error ?? {};
  } catch {
    return {};
  }
}
