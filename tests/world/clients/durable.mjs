// Clients of a durable stream: node durable.mjs write URL COUNT | node durable.mjs read URL OFFSET LIVE
// `write` creates the stream, appends with and without a producer, and closes it.
import { DurableStream, IdempotentProducer, stream } from "@durable-streams/client";

const [role, url, ...rest] = process.argv.slice(2);
const say = (object) => process.stdout.write(JSON.stringify(object) + "\n");
const problems = [];

async function write(count) {
  const handle = await DurableStream.create({ url, contentType: "application/json" });
  for (let n = 0; n < count; n++) await handle.append(JSON.stringify({ n }));
  const producer = new IdempotentProducer(handle, "producer-1", {
    autoClaim: true,
    onError: (error) => problems.push(String(error)),
  });
  for (let n = count; n < 2 * count; n++) producer.append(JSON.stringify({ n }));
  await producer.flush();
  say({ wrote: 2 * count, problems });
  process.stdin.once("end", async () => {
    await producer.close();
    say({ closed: true, problems });
  });
  process.stdin.resume();
}

async function read(offset, live) {
  while ((await fetch(url, { method: "HEAD" })).status === 404) await new Promise((over) => setTimeout(over, 100));
  const found = await stream({ url, offset, live: live === "false" ? false : live });
  found.subscribeJson((batch) => {
    for (const item of batch.items) say({ n: item.n, offset: batch.offset });
  });
  await found.closed;
  say({ over: true });
}

await (role === "write" ? write(Number(rest[0])) : read(...rest));
