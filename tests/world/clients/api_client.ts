// The requests of a producer, an operator and a consumer, by the client that is generated from
// /openapi.json. It prints what the server answered, as JSON.
//
// node api_client.js URL FEED

import createClient from "openapi-fetch";

import type { components, operations, paths } from "./openapi.js";

declare const process: { argv: string[] };

type Operation = components["schemas"]["Operation"];
type Consumer = components["schemas"]["Consumer"];

const [url, feed] = process.argv.slice(2) as [string, string];
const client = createClient<paths>({ baseUrl: url });
const params = { path: { feed } };

const created = await client.PUT("/feeds/{feed}", { params, body: { forget_after_days: 30 } });

const operation: Operation = { event: "insert", type: "order", id: "o-1", data: { total: 1 } };
const posted = await client.POST("/feeds/{feed}/ops", {
  params: { ...params, header: { Prefer: "return=representation", "Idempotency-Key": "k-1" } },
  body: [operation],
});

// An operation that breaks a rule is a type error, so the compiler has to be silenced.
const refused = await client.POST("/feeds/{feed}/ops", {
  params,
  // @ts-expect-error: upsert is not an event of an operation
  body: { ...operation, event: "upsert" },
});

const registered = await client.PUT("/feeds/{feed}/consumers/{name}", {
  params: { path: { feed, name: "search" } },
  body: { from: "oldest", types: ["order"] },
});
const consumer: Consumer | undefined = registered.data;

const leased = await client.POST("/feeds/{feed}/consumers/{name}/lease", {
  params: { path: { feed, name: "search" } },
  body: { worker: "worker-1" },
});
const acknowledged = await client.POST("/feeds/{feed}/consumers/{name}/ack", {
  params: { path: { feed, name: "search" } },
  body: { fence: leased.data?.fence ?? -1, through: posted.data?.ids[0] ?? null },
});

const listed = await client.GET("/feeds/{feed}/log", {
  params: { ...params, query: { from: posted.data?.ids[0] ?? "" } },
});
const status = await client.GET("/feeds/{feed}/status", { params });
const query: operations["deleteFeed"]["parameters"]["query"] = { confirm: feed, force: "true" };
const deleted = await client.DELETE("/feeds/{feed}", { params: { ...params, query } });

console.log(
  JSON.stringify({
    created: [created.response.status, created.data?.settings?.forget_after_days],
    posted: posted.data?.ids.length,
    refused: refused.error?.error,
    consumer: [consumer?.name, consumer?.position, consumer?.types],
    acknowledged: acknowledged.data?.fence === leased.data?.fence,
    entries: listed.data && "entries" in listed.data ? listed.data.entries.length : null,
    status: [status.data?.status, status.data?.events_received],
    deleted: [deleted.response.status, deleted.data?.feed],
  }),
);
