"""Find the key of a feed by its name, from the records and the configuration of the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.errors import FeedDeleted, Rejected, UnknownFeed
from tidings.core.feeds.records import FeedRecord
from tidings.core.model.feeds import check_name, number_of, public_name
from tidings.core.newest import Newest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from tidings.core.effects import Clock
    from tidings.core.feeds.records import FeedStore


class Directory:
    """The feeds of a host; implements `FeedNames`.

    The feeds *configured* exist without a record. A record is used for `limits.FEED_AGE_MS`,
    measured by *aging*, or until `forget`. A name without a record is cached, too. A server looks
    up names in its event loop, so there is no lock: each operation on the cache is atomic.

    Other processes may accept requests for a deleted feed for *stale_ms*, 0 if there is only one
    process.
    """

    def __init__(
        self, store: FeedStore, configured: Collection[str], aging: Clock, stale_ms: int = 0
    ) -> None:
        self.configured = frozenset(configured)
        self.store, self.stale_ms, self._aging = store, stale_ms, aging
        # Each record has the token that was current when its read began, see `profiles.Recent`.
        self._known: Newest[str, tuple[int, FeedRecord | None, object]] = Newest()
        self._token = object()

    def key(self, name: str) -> str:
        """Return the key of the feed *name*.

        Raises:
            InvalidFeed, UnknownFeed, FeedDeleted: see `FeedNames`.
            Unavailable: the store does not answer.
        """
        return _existing(name, self.record(name)).key

    def find(self, name: str) -> str | None:
        """Return the key of the feed *name*; None if it does not exist.

        Raises:
            Unavailable: the store does not answer.
        """
        try:
            return self.key(name)
        except Rejected:
            return None

    def check(self, key: str) -> None:
        """Check that the feed with *key* still exists.

        If the cached record is older than the feed, read it again: another process may have created
        the feed a moment ago.

        Raises:
            InvalidFeed, UnknownFeed, FeedDeleted: see `FeedNames`.
            Unavailable: the store does not answer.
        """
        name = public_name(key)
        record = self.record(name)
        if record is not None and record.is_live and record.key == key:
            return
        if record is None or record.number < number_of(key):
            self._known.pop(name, None)
            record = self.record(name)
        if _existing(name, record).key != key:
            raise FeedDeleted(name)

    def exists(self, key: str) -> bool:
        """Return True if the feed with *key* exists; see `check`."""
        try:
            self.check(key)
        except Rejected:
            return False
        return True

    def is_deleted(self, key: str) -> bool:
        """Return True if the feed with *key* was deleted, or if its creation was not completed."""
        record = self.record(public_name(key))
        return record is not None and not (record.is_live and record.key == key)

    def record(self, name: str) -> FeedRecord | None:
        """Return the record of *name* as it was in the last `limits.FEED_AGE_MS`.

        A configured feed without a record has a record with the version 0. Return None if the host
        never had a feed of that name.

        Raises:
            InvalidFeed: the name is not valid.
            Unavailable: the store does not answer.
        """
        known, now = self._known.get(name), self._aging()
        if known and known[2] is self._token and 0 <= now - known[0] < limits.FEED_AGE_MS:
            return known[1]
        token = self._token
        record = self.fresh(check_name(name))
        self._known[name] = now, record, token
        return record

    def fresh(self, name: str) -> FeedRecord | None:
        """Return the record of *name* as it is stored now; see `record`."""
        record = self.store.record(name)
        return FeedRecord(name) if record is None and name in self.configured else record

    def forget(self) -> None:
        """Read every record again, because one was changed."""
        self._token = object()

    def records(self, after: str = "", limit: int = limits.FEEDS_LISTED) -> Sequence[FeedRecord]:
        """Return at most *limit* records above *after* by name, with those of configured feeds."""
        stored = {each.name: each for each in self.store.records(after, limit)}
        last = max(stored) if len(stored) == limit else ""  # the configured ones after it come next
        others = {
            name: FeedRecord(name)
            for name in self.configured
            if name > after and name not in stored and not (last and name > last)
        }
        return [record for _, record in sorted({**others, **stored}.items())][:limit]

    def all(self) -> Iterator[FeedRecord]:
        """Yield every record by name, with those of configured feeds."""
        after = ""
        while found := self.records(after):
            yield from found
            after = found[-1].name

    def all_keys(self) -> Iterator[str]:
        """Yield the keys of all feeds that exist, ordered by name; they are read in parts."""
        return (record.key for record in self.all() if record.is_live)


def _existing(name: str, record: FeedRecord | None) -> FeedRecord:
    if record is None:
        raise UnknownFeed("no such feed here", field="feed", value=name)
    if not record.is_live:
        raise FeedDeleted(name)
    return record
