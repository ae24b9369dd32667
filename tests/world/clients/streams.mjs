// Print each event of a stream as a line of JSON: node streams.mjs eventsource|undici URL
// A browser's EventSource gives up after an answer such as 502; a page then makes a new one, as here.
const [name, url] = process.argv.slice(2);
const { EventSource } = await import(name);
const NAMES = ["insert", "update", "delete", "reset", "live", "leave"];
let cursor = null;

const say = (object) => process.stdout.write(JSON.stringify(object) + "\n");

function open() {
  const from = new URL(url);
  if (cursor !== null) from.searchParams.set("lastEventId", cursor);
  const source = new EventSource(from.href);
  source.addEventListener("open", () => say({ state: "open" }));
  source.addEventListener("error", () => {
    say({ state: source.readyState === EventSource.CLOSED ? "closed" : "connecting" });
    if (source.readyState === EventSource.CLOSED) setTimeout(open, 200);
  });
  for (const event of NAMES)
    source.addEventListener(event, (message) => {
      cursor = message.lastEventId;
      say({ id: message.lastEventId, event, data: message.data });
    });
}

setInterval(() => {}, 60_000); // undici waits to reconnect by a timer that keeps no process alive
open();
