/* Cursors and event ids: positions in a feed (PROTOCOL 5), and which events repeat others. */

export const EVERYTHING = "0";
export const NOW = "now";
export const AFTER_RESET = "1"; // the id of `reset`: nothing has been handled since (6.3)
export const PAGE_END = 0x7fffff; // the slot after the last entry of a page
const REPLICATION_SLOT = 0x800000; // slots from here up are positions in a copy (5.2)

/* Page and slot of an event id of the log; null for a row of a copy or anything else. */
export function placeOf(id) {
  const parts = partsOf(id);
  return parts && parts.slot < REPLICATION_SLOT ? parts : null;
}

export const isEventId = (id) => partsOf(id) !== null;
export const hex = (number, digits) => number.toString(16).padStart(digits, "0");
export const idOf = (seconds, page, slot) => hex(seconds, 8) + hex(page, 10) + hex(slot, 6);
export const isAfter = (one, two) =>
  one.page > two.page || (one.page === two.page && one.slot > two.slot);

function partsOf(id) {
  if (!/^[0-9a-f]{24}$/i.test(id)) return null;
  return { page: parseInt(id.slice(8, 18), 16), slot: parseInt(id.slice(18), 16) };
}

/* Page, then copies before the log, then the bucket of a copy or the slot; null for no place. */
function rankOf(id) {
  const parts = partsOf(id);
  if (parts === null) return null;
  const { page, slot } = parts;
  return slot < REPLICATION_SLOT ? [page, 1, slot] : [page, 0, slot & 0x7f];
}

/* The position of one connection, to drop late messages that would move it back (8.8). */
export class MonotonicCursor {
  #last = [0, 0, -1];

  /* Rows of a bucket may repeat, so they count as one place; an operation may not repeat. */
  rises(event, cursor) {
    // The cursor is after the rows that come with a reset, so it is compared, but not recorded.
    if (event.event === "reset") return this.#isAt(rankOf(cursor), true);
    return this.#risesTo(event.id, event.event !== "live" && placeOf(event.id) !== null);
  }

  moves(cursor) {
    return this.#risesTo(cursor, false);
  }

  #risesTo(id, above) {
    const rank = rankOf(id);
    if (!this.#isAt(rank, above)) return false;
    this.#last = rank ?? this.#last;
    return true;
  }

  #isAt(rank, above) {
    if (rank === null) return true; // it is not a place and cannot be compared
    const at = rank.findIndex((part, index) => part !== this.#last[index]);
    return at < 0 ? !above : rank[at] > this.#last[at];
  }
}

/* The last handled operation, to skip repeated ones (6.4). Rows, `reset` and `live` clear it. */
export class Handled {
  #last;

  constructor(cursor) {
    this.#last = placeOf(cursor);
  }

  /* Return false for a repeated operation; record any other event. */
  accepts(event) {
    const isMark = event.event === "reset" || event.event === "live";
    const place = isMark ? null : placeOf(event.id);
    if (place && this.#last && !isAfter(place, this.#last)) return false;
    this.#last = place;
    return true;
  }

  moveTo(cursor) {
    this.#last = placeOf(cursor);
  }
}
