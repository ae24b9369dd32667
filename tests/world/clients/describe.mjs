// Check the descriptions in a folder and generate clients from them, all offline.
//
// node describe.mjs FOLDER...: reads openapi.json and asyncapi.json of each folder, and prints the
// problems of both as JSON: for each folder a list of `{rule, message, at}`. If the first folder has
// no problem, it gets openapi.d.ts and models.ts.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { TypeScriptGenerator } from "@asyncapi/modelina";
import { Parser } from "@asyncapi/parser";
import { createConfig, lint } from "@redocly/openapi-core";
import openapiTS, { astToString } from "openapi-typescript";

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

async function generate(folder) {
  const read = (name) => JSON.parse(readFileSync(join(folder, name), "utf8"));
  const types = astToString(await openapiTS(read("openapi.json")));
  writeFileSync(join(folder, "openapi.d.ts"), types);
  const generator = new TypeScriptGenerator({
    modelType: "interface",
    enumType: "union",
    mapType: "record",
    rawPropertyNames: true,
  });
  const models = await generator.generateCompleteModels(read("asyncapi.json"), {
    exportType: "named",
  });
  const text = models.map(({ result }) => result).join("\n");
  writeFileSync(join(folder, "models.ts"), text.replaceAll(/^import .*$\n?/gm, ""));
}

const found = [];
for (const folder of folders) {
  const asyncapi = await parseAsyncapi(join(folder, "asyncapi.json"));
  found.push([...(await lintOpenapi(join(folder, "openapi.json"))), ...asyncapi]);
}
if (found[0].length === 0) await generate(folders[0]);
console.log(JSON.stringify(found));
