"""Read the log or the state as of the time of planning."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import DataSourceReader, InputPartition

from tidings.core import limits
from tidings.core.errors import InvalidCursor
from tidings.core.model import cursors
from tidings.core.model.cursors import NOW, PAGE_END, START, Place, Replication
from tidings.spark import tasks
from tidings.spark.backends.backend import Backend, Ends
from tidings.spark.errors import Gone, Lagging, WrongOption
from tidings.spark.offsets import Log, Rows
from tidings.spark.options import OLDEST, STATE, Options
from tidings.spark.tasks import Work
from tidings.sync.apply import NotFollowing, through


class Reader(DataSourceReader):
    """A reader of one range. It is created by the planner of a read, and sent to its tasks."""

    def __init__(self, options: Options, backend: Backend, work: Work) -> None:
        self._options, self._backend, self._work = options, backend, work
        if options.what == STATE and options.until:
            raise WrongOption(
                "until",
                "is not for the state, which is known as it is now alone: read the log up to the"
                " cursor and take `tidings.spark.latest` of it",
            )

    def partitions(self) -> list[InputPartition]:
        ends, options = self._backend.ends(), self._options
        if options.what == STATE:
            everything = Replication(0, self._reached(ends), 0, tombstones=False)
            return list(tasks.of_rows(everything, limits.BUCKETS, options.partitions))
        after, last = self._since(ends), self._until(ends)
        return list(self._backend.stretches(after, last, options.partitions))

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Read one partition. If the plan is empty, Spark calls this with None."""
        if partition is None:
            return iter(())
        assert isinstance(partition, Log | Rows)
        return self._work.do(partition)

    def _since(self, ends: Ends) -> Place:
        """
        Return the place at which to start.

        Raises:
            Gone: the log after the cursor was trimmed.
        """
        if self._options.since == OLDEST:
            return before(ends.floor)
        place = place_of("since", self._options.since)
        if place.page + 1 < ends.floor or not is_ours(self._backend, place, ends):
            raise Gone(
                f"the log does not go on behind {self._options.since}: it begins with page"
                f" {ends.floor}. Read from oldest, or the state"
            )
        return place

    def _until(self, ends: Ends) -> Place:
        if self._options.until in ("", NOW):
            return ends.frontier
        return _up_to("until", self._options.until, ends)

    def _reached(self, ends: Ends) -> int:
        """
        Return the checkpoint of the state, once it includes the requested page.

        Raises:
            Lagging: it does not advance to that page.
        """
        at_least = self._options.at_least
        if at_least == OLDEST:
            return ends.projected
        place = ends.frontier if at_least == NOW else _up_to("atLeast", at_least, ends)
        try:
            return through(_Projected(self._backend, self._options.where.feed, place.page))
        except NotFollowing as error:
            rule = f"atLeast={OLDEST} reads it as it stands"
            raise Lagging(f"{error}; {rule}") from None


@dataclass(frozen=True, slots=True)
class _Projected:
    """Implements `Progress`: the state of *feed* on its way to page *last*."""

    backend: Backend
    feed: str
    last: int

    def checkpoint(self) -> int:
        return self.backend.ends().projected

    def end(self) -> int:
        return self.last


def _up_to(option: str, text: str, ends: Ends) -> Place:
    """
    Return the place in *text*.

    Raises:
        WrongOption: it is not a place of the log, or is after its end.
    """
    place = place_of(option, text)
    if place.page > ends.frontier.page:
        rule = f"lies behind the end of the feed, {ends.frontier.encode()}"
        raise WrongOption(option, rule, text)
    return place


def before(page: int) -> Place:
    """Return the place from which to read a log that begins with *page* completely."""
    return START if page <= 1 else Place(page - 1, PAGE_END, 0)


def place_of(option: str, text: str) -> Place:
    """
    Return the place in *text*.

    Raises:
        WrongOption: it is not a place of the log.
    """
    try:
        cursor = cursors.parse(text)
    except InvalidCursor:
        cursor = None
    if not isinstance(cursor, Place):
        raise WrongOption(option, "must be the id of an event, 24 hex digits", text)
    return cursor


def is_ours(backend: Backend, place: Place, ends: Ends) -> bool:
    """Return True unless the page is known to have been committed at another second."""
    if place == START or place.page + 1 == ends.floor or place == ends.frontier:
        return True
    if place.page > ends.frontier.page:
        return False
    end = backend.end_of(place.page)
    if end is None or end.page != place.page:
        return not backend.lost(place)
    return end.seconds == place.seconds
