// The fold of the events: which objects there are, counted by type and folder.
//
// Pure: no page, no clock.

export const OBJECTS_MAX = 200000; // a browser tab holds these comfortably; then it stops counting
const TYPES_MAX = 1000; // types come from producers: a mistake there must not fill the memory
const ROOT = "·"; // the folder of objects without one

export class Fold {
  constructor() {
    this.focus = null; // {type, prefix}: show only what lies below
    this.clear();
  }

  clear() {
    this.objects = new Map(); // key -> {type, id}
    this.groups = new Map(); // name -> {type, folder, count}
    this.isWhole = false; // everything was copied
    this.isFull = false;
    this.copying = false;
  }

  // Take one event in; the name of the group it changed, or null.
  apply(event) {
    if (event.event === "reset") {
      this.clear();
      this.copying = true;
      return null;
    }
    if (event.event === "live") {
      this.isWhole ||= this.copying;
      this.copying = false;
      return null;
    }
    const { type, id } = event.data;
    if (typeof type !== "string" || typeof id !== "string") return null;
    const group = this.groupOf(type, id);
    const key = `${type}\0${id}`;
    if (event.event === "delete") {
      if (this.objects.delete(key)) this.#add(group, -1);
    } else if (!this.objects.has(key)) {
      if (this.objects.size >= OBJECTS_MAX) this.isFull = true;
      else {
        this.objects.set(key, { type, id });
        this.#add(group, 1);
      }
    }
    return group && group.name;
  }

  // Show what lies below *focus* ({type, prefix} or null for everything).
  look(focus) {
    this.focus = focus;
    this.groups = new Map();
    for (const { type, id } of this.objects.values()) this.#add(this.groupOf(type, id), 1);
  }

  // The group of an object under the focus; null when it lies elsewhere.
  groupOf(type, id) {
    let rest = id;
    if (this.focus) {
      if (type !== this.focus.type || !id.startsWith(this.focus.prefix)) return null;
      rest = id.slice(this.focus.prefix.length);
    }
    const slash = rest.indexOf("/", 1);
    const folder = slash > 0 ? rest.slice(0, slash + 1) : ROOT;
    return { name: `${type}\0${folder}`, type, folder };
  }

  // Groups, largest first.
  largest(count) {
    return [...this.groups.values()].sort((a, b) => b.count - a.count).slice(0, count);
  }

  #add(group, count) {
    if (!group) return;
    const found = this.groups.get(group.name) ?? { ...group, count: 0 };
    found.count += count;
    if (found.count > 0) this.groups.set(group.name, found);
    else this.groups.delete(group.name);
  }
}

// How many events of each kind each type had.
export class Tally {
  constructor() {
    this.total = 0;
    this.types = new Map(); // type -> {insert, update, delete}
  }

  count(event) {
    if (event.event === "reset" || event.event === "live") return;
    this.total += 1;
    const type = String(event.data.type ?? "?");
    let kinds = this.types.get(type);
    if (!kinds) {
      if (this.types.size >= TYPES_MAX) return;
      kinds = { insert: 0, update: 0, delete: 0 };
      this.types.set(type, kinds);
    }
    if (event.event in kinds) kinds[event.event] += 1;
  }

  // Types with their counts, busiest first.
  busiest(count) {
    const sum = (kinds) => kinds.insert + kinds.update + kinds.delete;
    return [...this.types]
      .map(([type, kinds]) => ({ type, ...kinds, sum: sum(kinds) }))
      .sort((a, b) => b.sum - a.sum)
      .slice(0, count);
  }
}
