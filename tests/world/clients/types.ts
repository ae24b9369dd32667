// Compiled, never run: the types of `@tidings/client`, and uses that they must reject.
import * as all from "@tidings/client";
import { Copy, type CursorStore, Feed, type FeedEvent, Listener, LocalStorageStore, post, Refused } from "@tidings/client";

interface Video {
  title: string;
}

const store: CursorStore = { load: async () => null, save: () => undefined };
const signal = AbortSignal.timeout(1000);

async function follow(): Promise<string> {
  const feed = new Feed<Video>("https://feed.example", {
    types: ["video"],
    password: async () => "secret",
    store,
    signal,
    onState: (state, delayMs = 0) => console.log(state === "waiting", delayMs + 1),
  });
  for await (const event of feed) {
    if (event.event === "reset" || event.event === "live") continue;
    const title: string | undefined = event.data.data?.title;
    const id: string = event.data.id;
    console.log(id, title);
    // @ts-expect-error: no such event
    if (event.event === "replace") feed.close();
  }
  return feed.cursor;
}

async function copy(): Promise<number> {
  const objects = new Copy<Video>("https://feed.example", { checkMs: 1000, onWrong: (bucket) => bucket + 1 });
  for await (const event of objects) console.log(event.id, objects.get("video", "x")?.data?.title);
  // @ts-expect-error: a copy has no filter of parents
  new Copy("https://feed.example", { parents: ["x"] });
  return objects.compared;
}

async function produce(): Promise<string[]> {
  // @ts-expect-error: the event is missing
  await post("https://feed.example", { type: "video", id: "x" });
  try {
    return await post<Video>("https://feed.example", { event: "insert", type: "video", id: "x", data: { title: "t" } });
  } catch (error) {
    if (error instanceof Refused && error.code === "wrong_password" && error.status === 401) return [];
    throw error;
  }
}

async function listen(): Promise<void> {
  const listener = new Listener("https://feed.example", { instance: "i", service: "s", resources: { vm: ["nic"] } });
  for await (const signal of listener) {
    if (signal.kind === "item") console.log(signal.changedResourceId, signal.changeKind.subResources);
    else if (signal.kind === "ended") console.log(signal.delay);
  }
}

// @ts-expect-error: the transport is "ws" or "sse"
new Feed("https://feed.example", { transport: "tcp" });
new Feed("https://feed.example", { store: new LocalStorageStore("cursor") });
const names: (keyof typeof all)[] = ["Copy", "Feed", "Listener", "LocalStorageStore", "Lost", "MemoryBuffer", "MemoryStore", "Refused", "keyOf", "post"];
type Missing = Exclude<keyof typeof all, "Copy" | "Feed" | "Listener" | "LocalStorageStore" | "Lost" | "MemoryBuffer" | "MemoryStore" | "Refused" | "keyOf" | "post">;
const missing: Missing[] = [];
missing satisfies never[];
export type { FeedEvent };
export { copy, follow, listen, names, produce };
