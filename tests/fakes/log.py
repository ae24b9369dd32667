"""The log of each feed: pages by number, the counter, the floor; and claims of its appends."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock

from tests.fakes.due import mark_nothing
from tidings.core import limits
from tidings.core.counters import LogCounter, refusal
from tidings.core.log.append import Claim
from tidings.core.log.stores import Result
from tidings.core.model.pages import Page, Pages

_PAGE_OVERHEAD_BYTES = 100  # what DynamoDB counts for a page in addition to its body


@dataclass
class _Feed:
    head: int = 0
    operations: int = 0
    successor: str = ""
    floor: int = 1
    pages: dict[int, Page] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)  # of `pages`, sorted
    newest: int = 0  # the page that was written last
    _read: dict[int, tuple[Page, Page]] = field(default_factory=dict)

    def as_read(self, page: Page) -> Page:
        """Return *page* without what only its writers need; kept, because many read it."""
        stored, found = self._read.get(page.number, (None, page))
        if stored is not page:
            found = replace(page, append_id="", expires_ms=0)
            self._read[page.number] = page, found
        return found


class MemoryLog:
    """Implements `LogStore`, and `Numbers` of `maintenance.restore`.

    An eventually consistent read misses the page that was written last, however long ago. *mark* is
    called with each feed of which a number is taken.
    """

    def __init__(self, mark: Callable[[str], object] = mark_nothing) -> None:
        self.mark = mark
        self._feeds: defaultdict[str, _Feed] = defaultdict(_Feed)
        self._lock = Lock()

    def together(self, run: Callable[[], Result]) -> Result:
        return run()

    def take(self, feed: str, operations: int = 0) -> int:
        with self._lock:
            if self._feeds[feed].successor:
                raise refusal(feed, self._feeds[feed].successor)
            self.mark(feed)
            self._feeds[feed].head += 1
            self._feeds[feed].operations += operations
            return self._feeds[feed].head

    def yield_to(self, feed: str, successor: str) -> None:
        with self._lock:
            self._feeds[feed].successor = successor

    def put(self, feed: str, page: Page) -> str:
        with self._lock:
            log = self._feeds[feed]
            if page.number not in log.pages:
                _write(log, page)
            return log.pages[page.number].append_id

    def enter(self, feed: str, pages: Sequence[Page], *, head: int, operations: int) -> bool:
        """Write all of *pages* with their *head*, or nothing if a number is taken."""
        with self._lock:
            log = self._feeds[feed]
            if any(page.number in log.pages for page in pages):
                return False
            for page in pages:
                _write(log, page)
            self.mark(feed)
            log.head = head
            log.operations += operations
            return True

    def raise_head(self, feed: str, page: int) -> None:
        with self._lock:
            self.mark(feed)
            self._feeds[feed].head = max(self._feeds[feed].head, page)

    def fill(self, feed: str, pages: Sequence[Page]) -> None:
        for page in pages:
            self.put(feed, page)

    def read(
        self, feed: str, after: int, limit: int | None = None, *, eventual: bool = False
    ) -> Pages:
        with self._lock:
            log = self._feeds[feed]
            found = Pages()
            size = 0
            for number in log.numbers[bisect_right(log.numbers, after) :]:
                if eventual and self._misses(feed, number):
                    continue
                page = log.pages[number]
                size += len(page.body) + _PAGE_OVERHEAD_BYTES
                found.more = bool(found) and size > limits.READ_PAGES_BYTES_MAX
                if found.more:
                    break
                found.append(log.as_read(page))
                if len(found) == limit:  # as DynamoDB does, it does not look whether that was all
                    found.more = True
                    break
            return found

    def _misses(self, feed: str, number: int) -> bool:
        """Return True if the replica of this read does not have this page yet."""
        return number == self._feeds[feed].newest

    def head(self, feed: str) -> int:
        with self._lock:
            return self._feeds[feed].head

    def log_counter(self, feed: str) -> LogCounter:
        with self._lock:
            log = self._feeds[feed]
            return LogCounter(log.head, log.operations, log.successor)

    def floor(self, feed: str) -> int:
        with self._lock:
            return self._feeds[feed].floor

    def raise_floor(self, feed: str, page: int) -> None:
        with self._lock:
            self._feeds[feed].floor = max(self._feeds[feed].floor, page)

    def expiries(self, feed: str, after: int, last: int) -> list[tuple[int, int]]:
        with self._lock:
            log = self._feeds[feed]
            numbers = log.numbers[
                bisect_right(log.numbers, after) : bisect_right(log.numbers, last)
            ]
            found = numbers[: limits.READ_ITEMS_MAX]
            return [(number, log.pages[number].expires_ms) for number in found]

    def renew(self, feed: str, page: int, expires_ms: int) -> None:
        with self._lock:
            pages = self._feeds[feed].pages
            if page in pages and 0 < pages[page].expires_ms < expires_ms:
                pages[page] = replace(pages[page], expires_ms=expires_ms)

    def rewrite(self, feed: str, page: Page, body: str | bytes) -> bool:
        with self._lock:
            pages = self._feeds[feed].pages
            stored = pages.get(page.number)
            if stored is not None and stored.body == page.body:
                stored = pages[page.number] = replace(stored, body=body)
            return stored is not None and stored.body == body

    def expire(self, now_ms: int) -> None:
        """Delete the expired pages, as DynamoDB's TTL does at some time."""
        with self._lock:
            for log in self._feeds.values():
                log.pages = {
                    number: page
                    for number, page in log.pages.items()
                    if not page.expires_ms or page.expires_ms > now_ms
                }
                log.numbers = sorted(log.pages)


def _write(log: _Feed, page: Page) -> None:
    log.pages[page.number] = page
    insort(log.numbers, page.number)
    log.newest = page.number


class MemoryClaims:
    """Implements `ClaimStore`."""

    def __init__(self) -> None:
        self._claims: dict[tuple[str, str], Claim] = {}
        self._lock = Lock()

    def find(self, feed: str, key: str, *, now_ms: int) -> Claim | None:
        with self._lock:
            return self._live(feed, key, now_ms)

    def claim(self, feed: str, claim: Claim, *, now_ms: int) -> Claim:
        with self._lock:
            standing = self._live(feed, claim.key, now_ms)
            if standing is not None:
                return standing
            self._claims[feed, claim.key] = claim
            return claim

    def move(self, feed: str, claim: Claim, page: int) -> Claim:
        with self._lock:
            standing = self._claims.get((feed, claim.key), claim)
            if (standing.append_id, standing.page) != (claim.append_id, claim.page):
                return standing
            moved = replace(claim, page=page)
            self._claims[feed, claim.key] = moved
            return moved

    def _live(self, feed: str, key: str, now_ms: int) -> Claim | None:
        claim = self._claims.get((feed, key))
        return claim if claim is not None and claim.expires_ms > now_ms else None
