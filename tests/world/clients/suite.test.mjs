// The cases of Durable Streams for servers, run by Vitest against CONFORMANCE_TEST_URL.
import { runConformanceTests } from "@durable-streams/server-conformance-tests";

runConformanceTests({ baseUrl: process.env.CONFORMANCE_TEST_URL });
