// Print each operation that arrives on a WebSocket: node socket.mjs URL FEED CURSOR
import { WebSocket } from "undici";

const [url, feed, cursor] = process.argv.slice(2);
const say = (object) => process.stdout.write(JSON.stringify(object) + "\n");
const socket = new WebSocket(url);
socket.addEventListener("open", () => socket.send(JSON.stringify({ action: "resume", feed, cursor })));
socket.addEventListener("close", (event) => say({ closed: event.code }));
socket.addEventListener("message", (message) => {
  for (const event of JSON.parse(message.data).events ?? []) say({ id: event.id, event: event.event });
});
