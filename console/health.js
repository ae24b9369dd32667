// Whether the host answers, and what the feed reports of itself (docs/PROTOCOL.md, section 9).

import { errorOf, send } from "./api.js";

const EVERY_MS = 5000; // a lag that lasts is what matters, not each page
const RETRY_MS_MIN = 2000;
const RETRY_MS_MAX = 30000; // longer delays are noticed after an outage

// Ask for the status of a feed repeatedly, while the page is visible.
//
// *on(health)* is called after each attempt, with {state, report, error}: `state` is `reached`,
// `refused`, `deleted` or `unreachable`.
export class Health {
  #on;
  #path = "";
  #timer = 0;
  #attempt = 0; // failures since the last answer
  #number = 0; // an answer to an earlier request is not shown
  answeredMs = 0; // when the last answer arrived, 0 if none has
  nextMs = 0;

  constructor(on) {
    this.#on = on;
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) this.check();
    });
  }

  follow(feed) {
    this.#path = `/feeds/${encodeURIComponent(feed)}/status`;
    return this.check();
  }

  async check() {
    clearTimeout(this.#timer);
    const mine = ++this.#number;
    const health = await this.#look();
    if (mine !== this.#number) return;
    const isLost = health.state === "unreachable";
    this.#attempt = isLost ? this.#attempt + 1 : 0;
    if (!isLost) this.answeredMs = Date.now();
    const wait = isLost ? Math.min(RETRY_MS_MIN * 2 ** (this.#attempt - 1), RETRY_MS_MAX) : EVERY_MS;
    this.nextMs = Date.now() + wait;
    this.#timer = setTimeout(() => {
      if (!document.hidden) this.check();
    }, wait);
    this.#on(health);
  }

  async #look() {
    const answer = await send("GET", this.#path, { signal: AbortSignal.timeout(RETRY_MS_MAX) }).catch(() => null);
    const said = await answer?.json().catch(() => null);
    if (typeof said?.status === "string") return { state: "reached", report: said }; // also if it is 503
    // A proxy answers for a server that is down.
    if (!answer || answer.ok || answer.status >= 500) return { state: "unreachable" };
    const error = errorOf(answer, said);
    return { state: error.code === "feed_deleted" ? "deleted" : "refused", error };
  }
}

// One short line: `OK · push 0, state 2 pages behind · 2 clients`.
export function line(report) {
  if (!Array.isArray(report?.followers)) return String(report?.status ?? "");
  const lags = report.followers.map(({ name, lag_pages: pages }) => `${name} ${pages.toLocaleString()}`);
  const clients = `${report.clients.toLocaleString()} client${report.clients === 1 ? "" : "s"}`;
  return `${report.status} · ${lags.join(", ")} pages behind · ${clients}`;
}
