/** Client of a Tidings change feed. Times are milliseconds. */

/** An operation as it is posted. */
export interface Operation<Data = unknown> {
  event: "insert" | "update" | "delete";
  type: string;
  id: string;
  parents?: string[] | null;
  /** RFC 3339; the time of receipt by default. */
  timestamp?: string | null;
  tags?: string[];
  changed?: string[];
  data?: Data;
}

/** The content of an operation as the feed sends it. Integers beyond 2^53 are of the type `bigint`. */
export interface Content<Data = unknown> {
  type: string;
  id: string;
  parents: string[];
  timestamp: string;
  tags?: string[];
  changed?: string[];
  data?: Data;
  /** The address of the object, if the feed has one. */
  ref?: string;
  /** Present if an erasure removed the content. */
  erased?: true;
}

export interface OperationEvent<Data = unknown> {
  /** The cursor after this event. */
  id: string;
  event: "insert" | "update" | "delete" | "leave" | "erase";
  data: Content<Data>;
  traceparent?: string;
}

/** `reset`: discard everything, a copy follows. `live`: the copy is complete, the log follows. */
export interface MarkEvent {
  id: string;
  event: "reset" | "live";
  data: Record<string, never>;
}

export type FeedEvent<Data = unknown> = OperationEvent<Data> | MarkEvent;

/**
 * `waiting` lasts *delayMs* and has a reason. `paused`: more than `bufferMax` events wait for the
 * loop. With the transport `sse`, `live` only means that the stream is open, except after a copy.
 */
export type State = "connecting" | "catching-up" | "live" | "waiting" | "paused" | "refused";
export type Password = string | (() => string | Promise<string>);

/** Where a consumer stores its cursor; `load` returns nothing if there is none. */
export interface CursorStore {
  load(): string | null | undefined | Promise<string | null | undefined>;
  save(cursor: string): void | Promise<void>;
}

export class MemoryStore implements CursorStore {
  constructor(cursor?: string);
  load(): string;
  save(cursor: string): void;
}

/** The entry *key* of `localStorage`, or of *storage*. */
export class LocalStorageStore implements CursorStore {
  constructor(key: string, storage?: { getItem(key: string): string | null; setItem(key: string, value: string): void });
  load(): string;
  save(cursor: string): void;
}

/** Whether requests send the cookies of the page, as in `fetch`. WebSockets always send them. */
export type Credentials = "omit" | "same-origin" | "include";

interface ConnectionOptions {
  /** `main` by default. */
  feed?: string;
  /** A password, key or token that may read; a function is called for each connection. */
  password?: Password;
  /** `omit` by default. A proxy with a sign-in cookie needs `same-origin` or `include`. */
  credentials?: Credentials;
  types?: string[];
  /**
   * By default a WebSocket if the runtime has one, and `sse` where it does not pass, as behind some
   * proxies. With `ws`, only a WebSocket.
   */
  transport?: "ws" | "sse";
  /** The address of the WebSocket, if it is not `/ws` below the address of the feed. */
  wsUrl?: string;
  /** The address of event streams, if it is not that of the feed, as on a stage. */
  streamUrl?: string;
  /** Replaces the runtime's WebSocket. */
  WebSocket?: unknown;
  /** Aborting it ends the iteration with its reason as the error. */
  signal?: AbortSignal;
  onState?(state: State, delayMs?: number, reason?: string): void;
}

export interface FeedOptions extends ConnectionOptions {
  parents?: string[];
  /** An id that ends with `*` selects every id with that prefix. */
  ids?: string[];
  /** Send `leave` for objects that stop matching `parents`. */
  leave?: boolean;
  /** Send `erase` instead of `delete` for erasures. */
  erasures?: boolean;
  /** Where to begin if the store is empty: an event id, `now` (default), or `0` for a copy first. */
  cursor?: string;
  store?: CursorStore;
  /** Events in memory before the connection is closed until the loop has handled half of them. */
  bufferMax?: number;
  /** A connection that resumed at *cursor* is live again, after *missed* events. */
  onResumed?(resumed: { cursor: string; missed: number }): void;
}

/**
 * The events of a feed, without end, in order and without gaps. An event counts as handled when the
 * next one is requested; a new iteration begins after the last handled one.
 *
 * @throws {Refused} while iterating: the server gave a final answer, such as a wrong password.
 */
export class Feed<Data = unknown> implements AsyncIterable<FeedEvent<Data>> {
  constructor(url: string, options?: FeedOptions);
  /** Everything up to it is handled. */
  readonly cursor: string;
  close(): void;
  [Symbol.asyncIterator](): AsyncGenerator<FeedEvent<Data>, void, undefined>;
}

export interface CopyOptions extends ConnectionOptions {
  /** The time between two comparisons with the feed, 18 s by default. */
  checkMs?: number;
  /** Called with the number of a bucket that differed and is read again. */
  onWrong?(bucket: number): void;
}

/**
 * A copy of the objects of a feed that is compared with the feed's checksums and repaired.
 * Iterating keeps it up to date. It needs HTTPS, localhost or Node.js.
 */
export class Copy<Data = unknown> implements AsyncIterable<FeedEvent<Data>> {
  constructor(url: string, options?: CopyOptions);
  /** The latest operation of each object, by `keyOf`. */
  readonly objects: ReadonlyMap<string, Content<Data>>;
  /** Page and slot of the latest operation of each object, by `keyOf`. */
  readonly places: ReadonlyMap<string, { page: number; slot: number; isDeleted: boolean }>;
  /** The number of comparisons. */
  readonly compared: number;
  get(type: string, id: string): Content<Data> | undefined;
  close(): void;
  /** Each event that changed the copy, and `live` each time the rows of the feed were read. */
  [Symbol.asyncIterator](): AsyncGenerator<FeedEvent<Data>, void, undefined>;
}

export function keyOf(type: string, id: string): string;

export interface PostOptions {
  feed?: string;
  /** A password, key or token that may post. */
  password?: Password;
  /** `omit` by default. */
  credentials?: Credentials;
  /** Requests with the same key are appended once; random by default. */
  idempotencyKey?: string;
  /** 8 by default. */
  attemptsMax?: number;
  signal?: AbortSignal;
}

/**
 * Append operations together and in order, at most 1,000; return their event ids.
 *
 * @throws {Refused} an operation is invalid, or the password is wrong; nothing was appended.
 * @throws {Lost} every attempt failed; the operations may have been appended.
 */
export function post<Data = unknown>(
  url: string,
  operations: Operation<Data> | Operation<Data>[],
  options?: PostOptions,
): Promise<string[]>;

/** A final answer. `code` is that of PROTOCOL 4.6; `status` is 0 on a WebSocket. */
export class Refused extends Error {
  readonly status: number;
  readonly code: string;
}

/** A failure after which another attempt may succeed. */
export class Lost extends Error {
  readonly afterMs: number;
}

export interface Bootstrap {
  kind: "bootstrap";
  resource: string;
  subResources: string[];
  route: string;
}

export type Signal =
  | Bootstrap
  | { kind: "object"; resource: string; fields: Content }
  | { kind: "live" }
  | {
      kind: "item";
      changeKind: { resource: string; subResources: string[] };
      changedResourceId: string;
      published: string;
      event?: "insert" | "delete";
      [field: string]: unknown;
    }
  | { kind: "ended"; reason: string; delay: number; refused: boolean };

/** A queue of texts between the connection and the loop. */
export interface Buffer {
  readonly length: number;
  /** Return false if the buffer is full. */
  put(text: string): boolean;
  take(): string | undefined;
  clear(): void;
}

export class MemoryBuffer implements Buffer {
  constructor(itemsMax?: number);
  readonly length: number;
  put(text: string): boolean;
  take(): string | undefined;
  clear(): void;
}

export interface ListenerOptions {
  instance: string;
  service: string;
  /** Sub-resources by resource. */
  resources: Record<string, string[]>;
  feed?: string;
  password?: string;
  /** `omit` by default; for the requests of objects. */
  credentials?: Credentials;
  buffer?: Buffer;
  minTimeout?: number;
  maxTimeout?: number;
  retries?: number;
  heartbeat?: number;
  wsUrl?: string;
  WebSocket?: unknown;
  /** Read the objects of a bootstrap; by default those of the feed's own route. */
  fetchObjects?(bootstrap: Bootstrap): AsyncIterable<unknown> | Iterable<unknown>;
}

/** A listener of Triton's change feed: all objects first, then the items that changed. */
export class Listener implements AsyncIterable<Signal> {
  constructor(url: string, options: ListenerOptions);
  close(): void;
  [Symbol.asyncIterator](): AsyncGenerator<Signal, void, undefined>;
}
