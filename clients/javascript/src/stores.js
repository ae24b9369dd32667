/*
 * Where a consumer stores its cursor between runs. Any object with `load()` and `save(cursor)` may
 * replace these; both may return a promise.
 */

export class MemoryStore {
  #cursor;

  constructor(cursor = "") {
    this.#cursor = cursor;
  }

  load() {
    return this.#cursor;
  }

  save(cursor) {
    this.#cursor = cursor;
  }
}

/* The entry *key* of the browser's `localStorage`, or of *storage*. */
export class LocalStorageStore {
  #key;
  #storage;

  constructor(key, storage = globalThis.localStorage) {
    if (!storage) throw new TypeError("this runtime has no localStorage; use another store");
    this.#key = key;
    this.#storage = storage;
  }

  load() {
    return this.#storage.getItem(this.#key) ?? "";
  }

  save(cursor) {
    this.#storage.setItem(this.#key, cursor);
  }
}
