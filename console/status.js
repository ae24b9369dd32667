// How far behind the feed's followers are, from its report (docs/PROTOCOL.md, section 9).

// One short line: `OK · push 0, state 3 pages behind · 2 clients`; empty where nobody reports.
export async function ask(feed) {
  try {
    const answer = await fetch(`/feeds/${encodeURIComponent(feed)}/status`, { cache: "no-store" });
    return line(await answer.json());
  } catch {
    return ""; // the badge says whether the feed is reached
  }
}

export function line(report) {
  if (!Array.isArray(report?.followers)) return String(report?.status ?? "");
  const lags = report.followers.map(({ name, lag_pages: pages }) => `${name} ${pages.toLocaleString()}`);
  const clients = `${report.clients.toLocaleString()} client${report.clients === 1 ? "" : "s"}`;
  return `${report.status} · ${lags.join(", ")} pages behind · ${clients}`;
}
