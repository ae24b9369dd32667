"""Correct a feed over HTTP, with only its address and a key.

Tasks read the rows of the state with their positions by replication (PROTOCOL 16.7), several
buckets in parallel. Corrections are sent in requests. The feed itself compares the positions and
appends the corrections (PROTOCOL 18).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from tidings.aws import clients
from tidings.aws.effects import now_ms, sleep_ms
from tidings.client.address import feed_url, status_url
from tidings.client.cli.status import fetch
from tidings.client.errors import ClientError, Lost
from tidings.client.feed_api import FeedApi
from tidings.client.retries import ATTEMPTS_MAX, Backoff
from tidings.core import limits
from tidings.core.errors import LogFellOff, OtherLog, TidingsError, Unavailable
from tidings.core.followers.follower import STATE
from tidings.core.model import cursors
from tidings.core.model.cursors import PAGE_END, Place
from tidings.core.replication.source import ALL
from tidings.core.replication.wire import Rows
from tidings.core.state.rows import Row
from tidings.core.sync import watermark as watermarks
from tidings.core.sync.apply import Outcome, RowLookup
from tidings.core.sync.watermark import Moment, Reached
from tidings.http.outbound.upstream import HttpUpstream
from tidings.sync.state import Buckets

if TYPE_CHECKING:
    from tidings.core.state.rows import ReadRows

Answer = TypeVar("Answer")


class NotCorrected(TidingsError):
    """The feed rejected a request. The message is that of the feed."""


@dataclass(frozen=True, slots=True)
class Remote:
    """Implements `Feed`. It is sent to the tasks that read the state, so it keeps no connection."""

    url: str
    feed: str
    password: str = field(default="", repr=False)

    def check(self) -> None:
        self.corrector().apply(self.feed, self.checkpoint(), ())

    def watermark(self, as_of: str) -> Reached | Moment:
        begun = watermarks.parse(as_of, now_ms=now_ms())
        if isinstance(begun, Moment):
            return begun
        end = self.end()
        seconds, floor = self._second_of(begun) if begun.page <= end else (None, 0)
        return watermarks.find_watermark(begun, seconds, floor=floor, end=end)

    def checkpoint(self) -> int:
        report = fetch(status_url(self.url, self.feed))
        if "followers" not in report.fields:
            raise Unavailable(report.problem or f"{self.feed} does not report its followers now")
        followers = report.fields["followers"]
        return next((each["checkpoint"] for each in followers if each["name"] == STATE), 0)

    def end(self) -> int:
        with _translated_errors(), FeedApi(self.url, self.feed, password=self.password) as api:
            cursor = cursors.parse(api.ask("GET", "log")["end"])
        assert isinstance(cursor, Place)
        return cursor.page

    def source(self) -> Buckets:
        return Buckets(self.feed, self.rows)

    def rows(self) -> ReadRows:
        return RemoteRows(self).read

    def corrector(self) -> Requests:
        return Requests(self)

    def _second_of(self, place: Place) -> tuple[int | None, int]:
        """Return the commit time in seconds of the page at *place*, and the floor of the log.

        The time is None if the page was trimmed, and -1 if *place* is of another log.
        """
        upstream, at = RemoteRows(self).upstream, feed_url(self.url, self.feed)
        behind = replace(place, slot=PAGE_END)
        try:
            floor = upstream.pages(at, behind, ALL, size=1, block_s=0).status.floor
        except LogFellOff as error:
            return None, error.floor
        except OtherLog:
            return -1, 0
        return (None if 0 < place.page < floor else place.seconds), floor


class RemoteRows:
    """The rows and pages of a remote feed. An instance is created in the task that reads them."""

    def __init__(self, remote: Remote) -> None:
        self._url = feed_url(remote.url, remote.feed)
        self.upstream = HttpUpstream(lambda: remote.password, clients.ca_certs())

    def read(self, feed: str, bucket: int, after: str | None = None) -> list[Row]:
        """Return rows with keys after *after*, in the order of the keys; an empty list at the end.

        Raises:
            UpstreamRefused: the password lacks permission.
            BrokenBatch: the address is not that of a feed.
            Unavailable: the feed does not respond after several attempts.
        """

        def ask() -> Rows:
            return self.upstream.rows(self._url, bucket, after, ALL)

        return list(_patiently(ask).rows)


class Requests:
    """Implements `Corrections`, with requests that have as many lines as the feed allows.

    Requests are sent one after the other. The first request opens the connection.
    """

    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    @cached_property
    def _api(self) -> FeedApi:
        return FeedApi(self._remote.url, self._remote.feed, password=self._remote.password)

    def look(self, feed: str, keys: Sequence[str]) -> RowLookup:
        def ask() -> RowLookup:
            with _translated_errors():
                answer = self._api.ask("POST", "corrections/rows", body={"keys": list(keys)})
            rows = [Row(**each) for each in answer["rows"]]
            return RowLookup(answer["state"], rows, answer["count"])

        return _patiently(ask)

    def apply(self, feed: str, through: int, part: Iterable[bytes], behind: int = 0) -> Outcome:
        lines = islice(part, behind, None)
        body, first_left = _body(lines)
        query = {"through": str(through)}

        def ask() -> Outcome:
            with _translated_errors():
                return Outcome(**self._api.send("corrections", body, query=query))

        outcome = _patiently(ask)
        is_complete = outcome.complete and first_left is None
        return replace(outcome, behind=behind + outcome.behind, complete=is_complete)


def _body(lines: Iterator[bytes]) -> tuple[bytes, bytes | None]:
    """Return the lines that fit into a request, and the next line, or None if all lines fit."""
    fitting: list[bytes] = []
    size = 0
    for line in lines:
        size += len(line.rstrip(b"\n")) + 1
        if fitting and size > limits.REQUEST_BYTES_MAX:
            return b"\n".join(fitting), line
        fitting.append(line.rstrip(b"\n"))
    return b"\n".join(fitting), None


def _patiently(ask: Callable[[], Answer]) -> Answer:
    """Return the result of *ask*, which must be idempotent; retry it if the feed is unavailable."""
    backoff = Backoff()
    for _ in range(ATTEMPTS_MAX - 1):
        try:
            return ask()
        except Unavailable:
            sleep_ms(round(1000 * backoff.next_s()))
    return ask()


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Convert errors of the HTTP client to errors of a sync."""
    try:
        yield
    except Lost as error:
        raise Unavailable(str(error)) from None
    except ClientError as error:
        raise NotCorrected(str(error)) from None
