// The settings: the feeds of the host, and the keys.

import * as feeds from "./view-feeds.js";
import * as keys from "./view-keys.js";

export const title = "Settings";

export function mount(root, context) {
  const parts = context.opens === "keys" ? [keys, feeds] : [feeds, keys];
  for (const part of parts) part.mount(root, context);
}

export function unmount() {}
