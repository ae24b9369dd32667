"""The feed that a sync corrects.

The module has the interface of a feed, the feed in DynamoDB tables, and the functions that apply a
plan.
"""

from __future__ import annotations

import gzip
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tidings.aws import clients
from tidings.aws.config import stages
from tidings.aws.config.settings import Settings
from tidings.aws.dynamodb import served
from tidings.aws.effects import new_runtime, now_ms, sleep_ms
from tidings.aws.stores import StageStores
from tidings.core.errors import Unavailable
from tidings.core.followers.follower import STATE
from tidings.core.log.reader import Filler, Reader
from tidings.core.model.feeds import FixedFeeds, check_name, public_name
from tidings.core.replication.copies import WriteGuard
from tidings.core.sync import watermark as watermarks
from tidings.core.sync.apply import Corrector, Outcome, RowLookup
from tidings.core.sync.watermark import Moment, Reached


class Corrections(Protocol):
    """The interface that appends corrections to a feed.

    An implementation leaves out the correction of an object that has changed
    (`tidings.core.sync.apply`).
    """

    def look(self, feed: str, keys: Sequence[str]) -> RowLookup:
        """Look up rows, as `Corrector.look` does."""

    def apply(self, feed: str, through: int, part: Iterable[bytes], behind: int = 0) -> Outcome:
        """Apply corrections, as `Corrector.apply` does."""


class Feed(Protocol):
    """One feed.

    All methods may raise:
        TidingsError: the feed rejects the request, or does not respond.
    """

    @property
    def feed(self) -> str: ...

    def checkpoint(self) -> int:
        """Return the last page that the state includes."""

    def end(self) -> int:
        """Return the last readable page. The next page does not exist, or is being written."""

    def check(self) -> None:
        """Check that the caller may correct the feed, before a plan is made."""

    def watermark(self, as_of: str) -> Reached | Moment:
        """Return the watermark (`core.sync.watermark`) for *as_of*, the start of a dump."""

    def source(self) -> StateSource: ...

    def rows(self) -> ReadRows: ...

    def corrector(self) -> Corrections: ...


# The maximum number of attempts to apply a batch. If only the response was lost, the repeated
# corrections count as done.
ATTEMPTS_MAX = 3
STALL_MS = 300_000  # longest time without progress: five sweeps; a crashed follower needs only two
POLL_MS = 50  # the first interval between polls; it is short, because a running follower is fast
if TYPE_CHECKING:
    from tidings.core.state.rows import ReadRows
    from tidings.sync.state import Buckets, StateSource

# The name of the count of each event in a summary.
NAMES = {"insert": "creates", "update": "updates", "delete": "deletes"}
POLL_MS_MAX = 1_000  # the interval is doubled after each poll, up to this limit


class NotFollowing(Exception):
    """The follower `state` does not reach the end of the log. The message has both positions."""


@dataclass(slots=True)
class Applied:
    applied: int = 0
    moved: int = 0
    done: int = 0

    def add(self, outcome: Outcome) -> None:
        self.applied += outcome.applied
        self.moved += outcome.moved
        self.done += outcome.done


def wait_for_state(
    feed: str, end: int, checkpoint: Callable[[], int], *, stall_ms: int = STALL_MS
) -> int:
    """Wait until the state of *feed* includes the page *end*; return the checkpoint of the state.

    *checkpoint* reads the checkpoint. There is no limit of time while the checkpoint advances.

    Raises:
        NotFollowing: the checkpoint did not advance for *stall_ms*.
    """
    reached, waited, poll = checkpoint(), 0, POLL_MS
    while reached < end:
        if waited >= stall_ms:
            sentence = f"the state of {feed} is at page {reached:,} and the log at page {end:,}"
            stalled = f"the state did not advance for {stall_ms // 1000} s"
            raise NotFollowing(f"{sentence}; {stalled}, see `tidings status`")
        sleep_ms(poll)
        now = checkpoint()
        waited = 0 if now > reached else waited + poll
        reached, poll = now, min(2 * poll, POLL_MS_MAX)
    return reached


def apply_plan(
    corrector: Corrections,
    feed: str,
    plan: Path,
    since: int,
    total: Applied,
    advance: Callable[[int], None],
) -> None:
    """Apply the parts in the folder *plan*, in the order of their names.

    *since* is the page up to which the rows of the plan were complete. *advance* is called with the
    number of lines that were done. The outcomes are added to *total*, even if an error is raised.

    Raises:
        PlanTooOld, Unavailable: see `Corrector.apply`.
    """
    for part in sorted(plan.glob("*/*.gz")):
        _apply_part(corrector, feed, part, since, total, advance)


def _apply_part(
    corrector: Corrections,
    feed: str,
    part: Path,
    since: int,
    total: Applied,
    advance: Callable[[int], None],
) -> None:
    with ExitStack() as opened:

        def lines() -> Iterable[bytes]:
            return opened.enter_context(gzip.open(part, "rb"))

        apply_lines(corrector, feed, lines, since, total, advance)


def apply_lines(
    corrector: Corrections,
    feed: str,
    lines: Callable[[], Iterable[bytes]],
    since: int,
    total: Applied,
    advance: Callable[[int], None],
) -> None:
    """Apply one part, as `apply_plan` does. Each call of *lines* returns all lines of the part."""
    behind, complete, attempt = 0, False, 1
    while not complete:
        try:
            outcome = corrector.apply(feed, since, lines(), behind)
        except Unavailable:
            if attempt == ATTEMPTS_MAX:
                raise
            attempt += 1
            continue
        total.add(outcome)
        advance(outcome.behind - behind)
        behind, complete, attempt = outcome.behind, outcome.complete, 1


_TABLES = "tables"  # used in place of the name of a stage if the tables are named
_READ_S = 10  # limit of a response; bulk reads may be slow, and a missing endpoint fails earlier
_ATTEMPTS = 5  # the attempts of a read; a throttled read is retried, because no client waits for it


@dataclass(frozen=True, slots=True)
class DynamoDBFeed:
    """The feed with the key *feed*, in the DynamoDB at *endpoint_url*. Implements `Feed`.

    If *endpoint_url* is None, it is AWS's DynamoDB. It is sent to the tasks that read the
    state, so it keeps no connection.
    """

    feed: str
    endpoint_url: str | None
    settings: Settings
    region: str | None = None  # None means the region of the environment

    def client(self, attempts: int = _ATTEMPTS) -> Any:
        import boto3  # noqa: TID251 uses the operator's credentials, not a function's role
        from botocore.config import Config  # noqa: TID251 see above

        retries: Any = {"mode": "standard", "total_max_attempts": attempts}
        config = Config(connect_timeout=2, read_timeout=_READ_S, retries=retries)
        known: Any = {"region_name": self.region}
        if self.endpoint_url is not None:
            known = {"endpoint_url": self.endpoint_url} | stages.LOCAL_CREDENTIALS
        client = boto3.client("dynamodb", config=config, **known)
        clients.read_items_raw(client)
        return client

    def on_its_endpoint(self) -> DynamoDBFeed:
        """Return this feed with the feeds and the sources that the tables at its endpoint name.

        Raises:
            UnknownFeed: the tables do not have the feed.
        """
        answer = self.client().get_item(
            TableName=self.settings.control_table, Key=served.served_key(), ConsistentRead=True
        )
        item = answer.get("Item", {})
        feeds, sources = served.served_feeds(item), served.served_sources(item)
        known = {"TIDINGS_FEEDS": ",".join(feeds), "TIDINGS_SOURCES": sources}
        return replace(self, settings=stages.settings(stages.LOCAL_STAGE, known)).with_key()

    def with_key(self) -> DynamoDBFeed:
        """Return this feed with its key, of which it has the name.

        A chained feed keeps its name, because `writable` refuses it without a request.

        Raises:
            UnknownFeed, FeedDeleted: the tables have no such feed.
        """
        from tidings.aws.dynamodb.records import find_key

        if self.feed in self.settings.sources:
            return self
        table, deployed = self.settings.control_table, self.settings.feeds
        return replace(self, feed=find_key(self.client(), table, self.feed, deployed))

    @property
    def writable(self) -> WriteGuard:
        """Return the guard against writes to a chained feed; the error names the upstream."""
        return WriteGuard(self.settings.sources)

    def source(self) -> Buckets:
        from tidings.sync.state import Buckets  # also imports PySpark

        return Buckets(self.feed, self.rows)

    def rows(self) -> ReadRows:
        return self.stores.state.read

    @property
    def stores(self) -> StageStores:
        """Return the stores, with new clients, which also retry writes."""
        return StageStores(self.settings, self.client)

    def check(self) -> None:
        """Check that the feed may be corrected.

        Raises:
            Chained: the feed copies another feed.
        """
        self.writable.check(self.feed)

    def watermark(self, as_of: str) -> Reached | Moment:
        """Return the watermark for *as_of*, the start of a dump.

        Raises:
            InvalidSync: *as_of* is invalid, or not of this feed.
        """
        begun = watermarks.parse(as_of, now_ms=now_ms())
        if isinstance(begun, Moment):
            return begun
        page, floor = self.reader().at(self.feed, begun.page), self.stores.log.floor(self.feed)
        seconds = page.seconds if page is not None else None
        return watermarks.find_watermark(begun, seconds, floor=floor, end=self.end())

    def checkpoint(self) -> int:
        return self.stores.followers.checkpoints(self.feed).get(STATE, 0)

    def end(self) -> int:
        return self.reader().frontier(self.feed, self.checkpoint()).page

    def reader(self) -> Reader:
        return self.stores.reader(now_ms)

    def corrector(self) -> Corrector:
        stores = self.stores
        return Corrector(
            states=stores.state,
            filler=Filler(self.reader(), self.settings.page_ms),
            runtime=new_runtime(self.settings),
            feed_names=FixedFeeds(frozenset({self.feed})),
            tombstones=stores.tombstones,
            writable=self.writable,
        )


def on_endpoint(feed: str, endpoint_url: str) -> DynamoDBFeed:
    """Return *feed* in the tables of the DynamoDB at *endpoint_url*.

    Raises:
        InvalidFeed: *feed* is not a valid name.
        UnknownFeed: the tables do not have the feed.
    """
    check_name(feed)
    settings = stages.settings(stages.LOCAL_STAGE, {"TIDINGS_FEEDS": feed})
    return DynamoDBFeed(feed, endpoint_url, settings).on_its_endpoint()


def on_stage(feed: str, stage: str) -> DynamoDBFeed:
    """Return *feed* on *stage*.

    Raises:
        NoStage: the stage does not exist, or is older than this command.
        InvalidFeed: *feed* is not a valid name.
        UnknownFeed: the stage does not have the feed.
    """
    import boto3  # noqa: TID251 see above

    check_name(feed)
    outputs = stages.settings_of(stage, boto3.client("cloudformation"))
    found = DynamoDBFeed(feed, None, stages.settings(stage, outputs))
    return found.with_key()


def add_tables(parser: ArgumentParser) -> None:
    """Add the arguments that `named_tables` reads."""
    for name in ("log", "state", "control"):
        parser.add_argument(f"--{name}-table", required=True)
    parser.add_argument("--region", help="region of the tables, if not the default one")
    parser.add_argument("--endpoint-url", help="address of another DynamoDB than AWS's")


def named_tables(feed: str, named: Namespace) -> DynamoDBFeed:
    """Return the feed with the key *feed* in the tables that the arguments name.

    See `add_tables`.
    """
    tables = named.log_table, named.state_table, named.control_table
    return on_tables(feed, *tables, region=named.region, endpoint_url=named.endpoint_url)


def on_tables(
    feed: str,
    log: str,
    state: str,
    control: str,
    *,
    region: str | None = None,
    endpoint_url: str | None = None,
) -> DynamoDBFeed:
    """Return the feed with the key *feed* in these tables, for a job that reads them.

    Raises:
        InvalidFeed: *feed* is not a valid key.
    """
    check_name(public_name(feed))
    names = {"LOG": log, "STATE": state, "CONTROL": control}
    tables = {f"TIDINGS_{name}_TABLE": table for name, table in names.items()}
    settings = stages.settings(_TABLES, {"TIDINGS_FEEDS": public_name(feed)} | tables)
    return DynamoDBFeed(feed, endpoint_url, settings, region)
