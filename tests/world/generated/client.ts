// Use the client that openapi-generator (typescript-fetch) makes.
//
// node client.js URL FEED PASSWORD

import {
  ChangesApi,
  Configuration,
  ConsumersApi,
  KeysApi,
  OperationsApi,
} from "./index.js";

declare const process: { argv: string[] };

const [basePath, feed, password] = process.argv.slice(2) as [string, string, string];
const configuration = new Configuration({ basePath, username: "ann", password });

const operation = { event: "insert", type: "order", id: "o-1", data: { total: 1 } } as const;
await new OperationsApi(configuration).postOperations({
  feed,
  postOperationsRootRequest: operation,
});

const changes = new ChangesApi(configuration);
const changeRequest = { tags: ["a"], data: { n: 7 } };
const posted = await changes.postChange({ feed, changeRequest });
const listed = await changes.listChanges({ feed, since: posted.id - 1 });

const keys = new KeysApi(configuration);
const key = await keys.createKey({ feed, keyRequest: { roles: ["read"], label: "a page" } });
const held = (await keys.listKeys({ feed })).keys.find(({ id }) => id === key.id);
const revoked = await keys.revokeKey({ feed, id: key.id });

const consumers = new ConsumersApi(configuration);
const named = { feed, name: "search" };
await consumers.putConsumer({ ...named, consumerRequest: { from: "oldest", types: ["order"] } });
const lease = await consumers.leaseConsumer({ ...named, leaseRequest: { worker: "w" } });
const acknowledgement = { fence: lease.fence };
await consumers.acknowledgeMessages({ ...named, acknowledgement });
const deleted = await consumers.deleteConsumer({ ...named, why: "a test", by: "ann" });
console.log(listed.changes.at(-1)?.data.n, held?.state, revoked.state, deleted.deleted);
