"""Read a feed from its DynamoDB tables, and pages that its log no longer has from its archive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidings.aws.config.stages import NoStage
from tidings.aws.effects import now_ms
from tidings.core.catchup.catchup import in_copy, margin
from tidings.core.errors import FeedDeleted, InvalidFeed, UnknownFeed
from tidings.core.followers.follower import STATE
from tidings.core.model.cursors import PAGE_END, Place, Replication
from tidings.core.model.operations import as_event
from tidings.core.model.pages import Page
from tidings.core.replication.copies import CopiedLosses, Copies
from tidings.core.state.rows import Row
from tidings.core.state.tombstones import forgotten, known_since
from tidings.spark.backends import ArchiveBackend, Ends, even
from tidings.spark.columns import Piece, of_page
from tidings.spark.options import Gone, Log, Where, WrongOption
from tidings.sync import feed as sync_feed


def tables_of(where: Where) -> sync_feed.DynamoDBFeed:
    """Return the tables that the options name.

    Raises:
        WrongOption: the stage or the feed does not exist.
    """
    try:
        if where.stage:
            return sync_feed.on_stage(where.feed, where.stage)
        if not where.tables:
            return sync_feed.on_endpoint(where.feed, where.endpoint)
        region, url = where.region or None, where.endpoint or None
        tables = sync_feed.on_tables(where.feed, *where.tables, region=region, endpoint_url=url)
        return tables.with_key()
    except NoStage as error:
        raise WrongOption("stage", str(error)) from None
    except (InvalidFeed, UnknownFeed, FeedDeleted) as error:
        raise WrongOption("feed", error.rule, where.feed) from None


@dataclass(frozen=True, slots=True)
class DynamoDBBackend:
    """Implements `Backend`. *where* has the key of the feed."""

    dynamodb: sync_feed.DynamoDBFeed
    where: Where

    def ends(self) -> Ends:
        if self.where.from_archive:
            return self._archive.ends()
        feed, log = self.where.feed, self.dynamodb.stores.log
        projected = self.dynamodb.stores.followers.checkpoints(feed).get(STATE, 0)
        frontier = self.dynamodb.reader().frontier(feed, projected)
        floor = log.floor(feed)
        needed = self.where.archive and floor > 1
        return Ends(min(floor, self._archive.first()) if needed else floor, frontier, projected)

    def end_of(self, page: int) -> Place | None:
        in_log = None if self.where.from_archive else self._next(page)
        if in_log is not None and in_log.first <= page:
            return in_log.end
        return self._end_in_archive(page)

    def _next(self, page: int) -> Page | None:
        return self.dynamodb.reader().next(self.where.feed, page) if page > 0 else None

    def stretches(self, after: Place, last: Place, count: int) -> Sequence[Log]:
        if self.where.from_archive:
            return self._archive.stretches(after, last, count)
        return even(after, last, count)

    def place_or_copy(self, place: Place) -> Replication:
        """Return a copy of the rows that changed since the time of *place*, or of all rows.

        The changed rows are sufficient if the state still has all tombstones since that time.
        Streams of the feed follow the same rule (PROTOCOL 5.6).
        """
        followers = self.dynamodb.stores.followers
        projected = followers.checkpoints(self.where.feed).get(STATE, 0)
        since_s = margin(place.seconds)
        if self.is_lost(place) or forgotten(
            since_s, known_since(self.dynamodb.stores.tombstones, self.where.feed, now_ms())
        ):
            return Replication(0, projected, 0, tombstones=False)
        return Replication(since_s, projected, 0, tombstones=True)

    def is_lost(self, at: Replication | Place) -> bool:
        """Return True if a reader at *at* has seen pages that the feed lost.

        A page after the end of the log was lost, unless the feed is chained: a chained feed may
        not have copied the page yet.
        """
        feed = self.where.feed
        stores = self.dynamodb.stores
        copies = Copies(self.dynamodb.settings.sources, lambda: stores.relays, now_ms)
        if feed not in copies and at.page > stores.log.head(feed):
            return True
        return CopiedLosses(stores.profiles, copies, lambda: stores.relays)(feed, at)

    def log(self, after: Place, last: Place) -> Iterator[Piece]:
        if self.where.from_archive:
            yield from self._archive.log(after, last)
            return
        reader = self.dynamodb.reader()
        done = after.page if after.slot == PAGE_END else after.page - 1
        while done < last.page:
            run = reader.read(self.where.feed, done)
            if run.trimmed:
                end = Place(min(last.page, run.floor - 1), PAGE_END, 0)
                yield from self._below(Place(done, PAGE_END, 0), end)
                done = end.page
                continue
            if not run.pages:
                raise Gone(f"page {done + 1} is not in the log")
            for page in run.pages:
                if page.number <= last.page and page.lines:
                    yield of_page(page)
            done = run.pages[-1].number

    def rows(self, copy: Replication, end: int) -> Iterator[Piece]:
        state, now = self.dynamodb.stores.state, now_ms()
        for bucket in range(copy.bucket, end):
            after = None
            while rows := state.read(self.where.feed, bucket, after):
                yield _piece([row for row in rows if _is_wanted(row, copy, now)])
                after = rows[-1].key

    def _end_in_archive(self, page: int) -> Place | None:
        if not self.where.archive:
            return None
        try:
            return self._archive.end_of(page)
        except Gone:
            return None

    def _below(self, after: Place, last: Place) -> Iterator[Piece]:
        if not self.where.archive:
            rule = "was removed from the log; the option archive is needed to read older pages"
            raise Gone(f"page {after.page + 1} {rule}")
        return self._archive.log(after, last)

    @property
    def _archive(self) -> ArchiveBackend:
        return ArchiveBackend(self.where)


def _is_wanted(row: Row, copy: Replication, now: int) -> bool:
    if not row.is_complete:
        raise Gone(f"the row of {row.key} is broken; `tidings verify` reports the details")
    since_ms = copy.since_s * 1000
    return in_copy(row, since_ms=since_ms, tombstones=copy.tombstones, now_ms=now)


def _piece(rows: Sequence[Row]) -> Piece:
    """Return rows of a copy as operations `insert` or `delete` (PROTOCOL 6.3)."""
    return Piece(
        [row.line if row.deleted else as_event(row.line, "insert") for row in rows],
        [row.page for row in rows],
        [row.slot for row in rows],
        [row.at_ms for row in rows],
    )
