// Whether the host answers, and what the feed reports of itself (docs/PROTOCOL.md, section 9).

import { errorOf, send } from "./api.js";
import { plural } from "./page.js";

const EVERY_MS = 5000; // a lag that lasts is what matters, not each page
const RETRY_MS = 1000; // a host that was restarted is noticed at once
const ANSWER_WITHIN_MS = 10000;

// Ask for the status of a feed repeatedly, while the page is visible.
//
// *on(health)* is called after each attempt, with {state, report, error}: `state` is `reached`,
// `refused`, `deleted` or `unreachable`.
export class Health {
  #on;
  #path = "";
  #timer = 0;
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
    if (!isLost) this.answeredMs = Date.now();
    const wait = isLost ? RETRY_MS : EVERY_MS;
    this.nextMs = Date.now() + wait;
    this.#timer = setTimeout(() => {
      if (!document.hidden) this.check();
    }, wait);
    this.#on(health);
  }

  async #look() {
    const answer = await send("GET", this.#path, { signal: AbortSignal.timeout(ANSWER_WITHIN_MS) }).catch(() => null);
    const said = await answer?.json().catch(() => null);
    if (typeof said?.status === "string") return { state: "reached", report: said }; // also if it is 503
    // A proxy answers for a server that is down.
    if (!answer || answer.ok || answer.status >= 500) return { state: "unreachable" };
    const error = errorOf(answer, said);
    return { state: error.code === "feed_deleted" ? "deleted" : "refused", error };
  }
}

const lagOf = (pages) => (pages ? `${plural(pages, "page")} behind` : "no lag");

// One short line, `2 clients, no lag`, and its details. This page is a client if it *isReading*.
export function line({ status, followers, clients }, isReading) {
  if (!Array.isArray(followers)) return { text: String(status ?? ""), title: "" };
  const most = Math.max(0, ...followers.map(({ lag_pages: pages }) => pages));
  const counted = plural(Math.max(clients, isReading ? 1 : 0), "client");
  return {
    text: `${status === "OK" ? "" : `${status} · `}${counted}, ${lagOf(most)}`,
    title: `Clients that are connected now${isReading ? ", with this page" : ""}. Work of the feed: ${
      followers.map(({ name, lag_pages: pages }) => `${name} ${lagOf(pages)}`).join(", ")}`,
  };
}
