// Check the descriptions in folders, offline.
//
// node describe.mjs FOLDER...: reads openapi.json and asyncapi.json of each folder, and prints the
// problems of both as JSON: for each folder a list of `{rule, message, at}`.

import { readFileSync } from "node:fs";
import { join } from "node:path";

import { Parser } from "@asyncapi/parser";
import { createConfig, lint } from "@redocly/openapi-core";

const folders = process.argv.slice(2);

async function lintOpenapi(path) {
  const config = await createConfig({
    extends: ["recommended-strict"],
    rules: {
      // The members of a cluster are fixed, so those routes only answer 501 (PROTOCOL 12.15).
      "operation-2xx-response": "off",
    },
  });
  const problems = await lint({ ref: path, config });
  return problems.map(({ ruleId, message, location }) => ({
    rule: ruleId,
    message,
    at: location[0]?.pointer,
  }));
}

async function parseAsyncapi(path) {
  const { document, diagnostics } = await new Parser().parse(readFileSync(path, "utf8"));
  const problems = diagnostics
    .filter(({ code }) => code !== "asyncapi-latest-version")
    .map(({ code, message, path }) => ({ rule: code, message, at: path.join("/") }));
  return document ? problems : [{ rule: "parser", message: "not parsed", at: "" }, ...problems];
}

const found = [];
for (const folder of folders) {
  const asyncapi = await parseAsyncapi(join(folder, "asyncapi.json"));
  found.push([...(await lintOpenapi(join(folder, "openapi.json"))), ...asyncapi]);
}
console.log(JSON.stringify(found));
