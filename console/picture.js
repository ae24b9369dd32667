// A picture of the objects of a feed: one area for each type and folder, which glows when it changes,
// and the events of each type.

import { secret, transport } from "./api.js";
import { glow, GLOW_MS, treemap } from "./charts.js";
import { Reader } from "./client/reader.js";
import { Fold, Tally } from "./fold.js";
import { button, card, element, everyFrame, h, plain } from "./page.js";
import { valuesOf } from "./requests.js";

const DRAW_EVERY_MS = 80; // smooth to look at, and light on a busy feed
const GROUPS_MAX = 80; // smaller areas could not be told apart
const TABLE_ROWS_MAX = 40;
const TYPES_SHOWN = 8;

const calm = matchMedia("(prefers-reduced-motion: reduce)");
const dark = matchMedia("(prefers-color-scheme: dark)");

export class Picture {
  constructor(key) {
    this.key = key;
    this.fold = new Fold();
    this.tally = new Tally();
    this.heat = new Map(); // group name -> {kind, until}
    this.areas = [];
    this.drawn = 0;
    this.isChanged = true;
    this.cursor = "0";
    this.parts = content(this);
    this.onScheme = () => (this.isChanged = true);
  }

  $(id) {
    return this.parts.querySelector(`#${id}`);
  }

  mount(root, context) {
    const { feed, params } = context;
    root.append(this.parts);
    const choice = { feed, password: secret };
    for (const name of ["types", "parents"]) choice[name] = valuesOf(params.get(name) ?? "");
    this.reader = new Reader(transport(choice), this.cursor, {
      events: (events) => {
        for (const event of events) this.take(event);
        this.isChanged = true;
      },
      cursor: (text) => (this.cursor = text),
      refused: (error) => context.signIn(error),
    });
    context.onReached(() => this.reader.start());
    dark.addEventListener("change", this.onScheme);
    this.sizes = new ResizeObserver(this.onScheme);
    this.sizes.observe(this.$("map"));
    this.stopDrawing = everyFrame((now) => this.draw(now));
    this.reader.start();
  }

  unmount() {
    this.reader.stop();
    this.stopDrawing();
    this.sizes.disconnect();
    dark.removeEventListener("change", this.onScheme);
    this.parts.remove();
  }

  take(event) {
    const group = this.fold.apply(event);
    if (group) this.heat.set(group, { kind: event.event, until: performance.now() + GLOW_MS });
    if (event.event === "reset") this.heat.clear();
    this.tally.count(event);
  }

  draw(now) {
    if (now - this.drawn < DRAW_EVERY_MS || (!this.isChanged && !this.heat.size)) return;
    this.drawn = now;
    this.areas = treemap(this.$("map"), this.fold.largest(GROUPS_MAX), (name) => this.warmth(name, now));
    if (!this.isChanged) return;
    this.isChanged = false;
    this.showTypes();
    if (this.$("groups").closest("details").open) this.showGroups();
  }

  warmth(name, now) {
    const warm = this.heat.get(name);
    if (!warm) return null;
    const share = glow(warm.until - now, calm.matches);
    if (!share) this.heat.delete(name);
    return share ? { kind: warm.kind, share } : null;
  }

  showTypes() {
    const busiest = this.tally.busiest(TYPES_SHOWN);
    const most = Math.max(1, ...busiest.map((type) => type.sum));
    this.$("bars").replaceChildren(...busiest.map((type) => bar(type, most)));
  }

  showGroups() {
    const rows = this.fold.largest(TABLE_ROWS_MAX).map((group) => {
      const opens = button(`${group.type} ${group.folder}`, () => this.open(group.name), undefined, "plain");
      opens.disabled = !group.folder.endsWith("/");
      return h("tr", {}, h("td", {}, opens), h("td", { class: "number" }, group.count.toLocaleString()));
    });
    this.$("groups").replaceChildren(...rows);
  }

  showCrumbs() {
    const crumb = (text, focus) => button(text, () => this.look(focus), undefined, "plain");
    const crumbs = [];
    if (this.fold.focus) {
      const { type, prefix } = this.fold.focus;
      crumbs.push(crumb("everything", null), crumb(type, { type, prefix: "" }));
      let at = prefix.indexOf("/", 1);
      for (let from = 0; at >= 0; from = at + 1, at = prefix.indexOf("/", from)) {
        crumbs.push(crumb(prefix.slice(from, at + 1), { type, prefix: prefix.slice(0, at + 1) }));
      }
    }
    this.$("crumbs").replaceChildren(...crumbs);
  }

  look(focus) {
    this.fold.look(focus);
    this.heat.clear();
    this.isChanged = true;
    this.showCrumbs();
  }

  open(group) {
    const found = this.fold.groups.get(group);
    if (!found || !found.folder.endsWith("/")) return;
    this.look({ type: found.type, prefix: (this.fold.focus?.prefix ?? "") + found.folder });
  }

  areaAt({ offsetX: x, offsetY: y }) {
    return this.areas.find((box) => x >= box.x && x < box.x + box.width && y >= box.y && y < box.y + box.height);
  }

  point(event) {
    const item = this.areaAt(event)?.item;
    this.$("map").title = item ? plain(`${item.type} ${item.folder}: ${item.count.toLocaleString()}`) : "";
    this.$("map").style.cursor = item?.folder.endsWith("/") ? "pointer" : "default";
  }
}

function content(picture) {
  return card("picture", "Objects by type and folder",
    h("nav", { id: "crumbs", class: "crumbs", "aria-label": "Folder shown" }),
    h("canvas", {
      id: "map", role: "img", "aria-label": "One area for each folder, as large as it has objects; the table below has the same content",
      onclick: (event) => picture.open(picture.areaAt(event)?.item.name), onmousemove: (event) => picture.point(event),
    }),
    h("details", { ontoggle: () => (picture.isChanged = true) }, h("summary", {}, "As a table"),
      h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Type and folder"), h("th", { scope: "col" }, "Objects"))),
        h("tbody", { id: "groups" }))),
    h("h3", {}, "Events by type"),
    h("ul", { class: "legend soft" }, ["insert", "update", "delete"].map((kind) =>
      h("li", {}, h("span", { class: `swatch ${kind}` }), ` ${kind}`))),
    h("div", { id: "bars", class: "bars" }));
}

function bar(type, most) {
  const track = element("div", "track");
  for (const kind of ["insert", "update", "delete"]) {
    const part = element("span", kind);
    part.style.width = `${(type[kind] / most) * 100}%`;
    part.title = `${type[kind].toLocaleString()} ${kind}`;
    track.append(part);
  }
  return h("div", { class: "bar" },
    element("span", "name", plain(type.type)), track, element("span", "count", type.sum.toLocaleString()));
}
