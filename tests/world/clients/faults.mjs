// Print what a client receives for each case: node faults.mjs PACKAGE CLIENT CASES LAST
import { readFileSync } from "node:fs";
import vm from "node:vm";

const [path, client, cases, last] = process.argv.slice(2);
const { Copy, Feed, Listener, post } = await import(path);
const source = readFileSync(new URL("../../../examples/browser/copy.js", import.meta.url), "utf8");
const EventSourceCopy = vm.runInThisContext(`${source}; EventSourceCopy`);
const namesOf = (objects) => [...objects].map(({ id }) => id).sort();

async function follow(url, cursor, transport) {
  const names = [];
  for await (const { data } of new Feed(url, { cursor, transport })) {
    names.push(data.id);
    if (data.id === last) return names;
  }
}

const clients = {
  "feed-sse": ({ url, start }) => follow(url, start, "sse"),
  "feed-ws": ({ url, start }) => follow(url, start, "ws"),
  async copy({ url }) {
    const copy = new Copy(url);
    for await (const { event } of copy) if (event === "live") break;
    return namesOf(copy.objects.values());
  },
  async listener({ url }) {
    let objects = [];
    const options = { instance: "i", service: "s", resources: { video: ["x"] }, minTimeout: 100 };
    for await (const { kind, fields } of new Listener(url, options)) {
      if (kind === "ended") objects = [];
      if (kind === "object") objects.push(fields);
      if (kind === "live") return namesOf(objects);
    }
  },
  async post({ url, name }) {
    await post(url, { event: "insert", type: "video", id: name }, { feed: "posted" });
    return [];
  },
  page: ({ url }) =>
    new Promise((resolve, reject) => {
      const copy = new EventSourceCopy(`${url}ops`, (state) => {
        if (state === "live") resolve(namesOf(copy.objects.values()));
        if (state.startsWith("refused")) reject(new Error(state));
      });
      copy.open();
    }),
};

setInterval(() => {}, 60_000); // an EventSource that waits to reconnect keeps no process alive
const found = JSON.parse(cases).map((each) =>
  clients[client](each).catch((error) => `${error.name}: ${error.message}`),
);
process.stdout.write(JSON.stringify(await Promise.all(found)), () => process.exit());
