export { Copy, keyOf } from "./copy.js";
export { Lost, Refused } from "./errors.js";
export { Feed } from "./feed.js";
export { Listener, MemoryBuffer } from "./listener.js";
export { post } from "./post.js";
export { LocalStorageStore, MemoryStore } from "./stores.js";
