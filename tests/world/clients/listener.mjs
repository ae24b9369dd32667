// A listener of Triton's change feed, by its own library: node listener.mjs URL INSTANCE RESOURCE...
// The package's main module loads the publisher and its database, too; the listener stands alone.
import Listener from "changefeed/lib/listener.js";

const [url, instance, ...resources] = process.argv.slice(2);
const say = (kind, fields = {}) => process.stdout.write(JSON.stringify({ kind, ...fields }) + "\n");
const nothing = () => {};
const log = { trace: nothing, debug: nothing, info: nothing, warn: nothing, error: nothing };
log.child = () => log;
const wanted = resources.map((each) => {
  const [resource, subs] = each.split(":");
  return { resource, subResources: subs.split(",") };
});
const listener = new Listener({
  log,
  url,
  instance,
  service: "tcns",
  backoff: { minTimeout: 10, maxTimeout: 1000, retries: Infinity },
  ...(wanted.length === 1 ? { changeKind: wanted[0] } : { resources: wanted }),
});
listener.on("bootstrap", (route) => say("bootstrap", route));
listener.on("connection-end", () => say("end"));
listener.on("connection-reset", () => say("reset"));
listener.on("error", (error) => say("error", { message: String(error) }));
listener.on("data", (item) => say("item", { id: item.changedResourceId, item }));
listener.register();
