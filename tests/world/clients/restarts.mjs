// Print what clients receive through each proxy: node restarts.mjs FEED START '{"PROXY": "URL"}'
// An EventSource that has given up is not replaced.
import { EventSource } from "eventsource";
import { Feed } from "@tidings/client";

const [feed, start, urls] = process.argv.slice(2);
const say = (object) => process.stdout.write(JSON.stringify(object) + "\n");

function withEventSource(client, url) {
  const source = new EventSource(`${url}feeds/${feed}/ops?lastEventId=${start}`);
  for (const event of ["insert", "update", "delete"])
    source.addEventListener(event, (message) => say({ client, id: message.lastEventId }));
  source.addEventListener("error", () => {
    if (source.readyState === EventSource.CLOSED) say({ client, end: "it gave up" });
  });
}

async function withFeed(client, url, transport) {
  try {
    for await (const { id } of new Feed(url, { feed, transport, cursor: start })) say({ client, id });
  } catch (error) {
    say({ client, end: String(error) });
  }
}

for (const [proxy, url] of Object.entries(JSON.parse(urls))) {
  withEventSource(`${proxy} eventsource`, url);
  for (const transport of ["ws", "sse"]) withFeed(`${proxy} @tidings/client ${transport}`, url, transport);
}
