// Print what `@tidings/client` delivers: node follow.mjs Feed|Copy URL OPTIONS
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import * as tidings from "@tidings/client";

const [kind, url, text] = process.argv.slice(2);
const { file, eventMs = 0, abortAfter, ...options } = JSON.parse(text);
const say = (object) => process.stdout.write(JSON.stringify(object) + "\n");

// A `Storage` in a file, in place of the browser's.
const storage = {
  getItem: () => (existsSync(file) ? readFileSync(file, "utf8") : null),
  setItem: (key, value) => writeFileSync(file, value),
};
if (file) options.store = new tidings.LocalStorageStore("cursor", storage);
const abort = new AbortController();
options.signal = abort.signal;
options.onState = (state) => say({ state });
if (kind === "Copy") options.onWrong = (wrong) => say({ wrong });

const reader = new tidings[kind](url, options);
let count = 0;
try {
  for await (const { id, event, data } of reader) {
    say({ id, event, name: data.id, ...(kind === "Copy" && { size: reader.objects.size }) });
    count += 1;
    if (count === abortAfter) abort.abort();
    if (eventMs) await new Promise((resolve) => setTimeout(resolve, eventMs));
  }
} catch (error) {
  say({ error: error.name, code: error.code, status: error.status });
}
