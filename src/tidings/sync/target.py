"""Where a feed is: its tables, on a stage or a twin, and what is built on them."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass, replace
from typing import Any

from tidings.aws.config import stages, twin_keys
from tidings.aws.config.settings import Settings
from tidings.aws.dynamodb import local_feeds
from tidings.aws.dynamodb.followers import DynamoDBFollowers
from tidings.aws.dynamodb.log import DynamoDBLog
from tidings.aws.dynamodb.profiles import DynamoDBProfiles
from tidings.aws.dynamodb.state import DynamoDBState
from tidings.aws.dynamodb.tombstones import DynamoDBTombstones
from tidings.aws.dynamodb.transport import raw_query
from tidings.aws.runtime.clock import now_ms, sleep_ms
from tidings.core.followers.follower import STATE
from tidings.core.log.reader import Filler, Reader
from tidings.core.model.feeds import check_known, check_name
from tidings.core.replication.copies import WriteGuard
from tidings.core.sync import watermark as watermarks
from tidings.core.sync.apply import Corrector
from tidings.core.sync.watermark import Moment, Reached
from tidings.sync.state import Buckets

_TWIN = "local"
_TABLES = "tables"  # where no stage is named
_READ_S = 10  # a bulk reader has time; an endpoint that is not there is known by its connection
_ATTEMPTS = 5  # a throttled read is worth waiting for: nobody waits for its answer


@dataclass(frozen=True, slots=True)
class Place:
    """
    *feed* behind *endpoint_url* (None: AWS). Implements `Feed`. It is sent to the tasks that read
    the state.
    """

    feed: str
    endpoint_url: str | None
    settings: Settings
    region: str | None = None  # that of the environment

    def client(self, attempts: int = _ATTEMPTS) -> Any:
        import boto3  # noqa: TID251 an operator's own credentials and profile, not a function's
        from botocore.config import Config  # noqa: TID251 see above

        retries: Any = {"mode": "standard", "total_max_attempts": attempts}
        config = Config(connect_timeout=2, read_timeout=_READ_S, retries=retries)
        known: Any = {"region_name": self.region}
        if self.endpoint_url is not None:  # with the twin's key: none of yours are sent to it
            known = {"endpoint_url": self.endpoint_url} | twin_keys.credentials(self.endpoint_url)
        client = boto3.client("dynamodb", config=config, **known)
        raw_query.read_items_raw(client)
        return client

    def on_its_twin(self) -> Place:
        """
        What the twin whose tables these are says of the feed.

        Raises:
            UnknownFeed: it does not serve it.
        """
        answer = self.client().get_item(
            TableName=self.settings.control_table, Key=local_feeds.key(), ConsistentRead=True
        )
        item = answer.get("Item", {})
        feeds, sources = local_feeds.decode(item), local_feeds.sources_of(item)
        check_known(self.feed, feeds)
        known = {"TIDINGS_FEEDS": ",".join(feeds), "TIDINGS_SOURCES": sources}
        return replace(self, settings=stages.settings(_TWIN, known))

    @property
    def writable(self) -> WriteGuard:
        """Nobody writes to a feed that is a copy; its address says where to go instead."""
        return WriteGuard(self.settings.sources)

    def source(self) -> Buckets:
        return Buckets(self.feed, self.rows)

    def rows(self) -> DynamoDBState:
        return self.state()

    def state(self) -> DynamoDBState:
        """Written by nobody here, so that a read may be repeated."""
        return DynamoDBState(self.client(), self.settings.state_table)

    def log(self) -> DynamoDBLog:
        return DynamoDBLog(self.client(), self.settings.log_table, self.settings.control_table)

    def followers(self) -> DynamoDBFollowers:
        return DynamoDBFollowers(self.client(), self.settings.control_table)

    def check(self) -> None:
        """
        Raises:
            Chained: the feed is a copy.
        """
        self.writable.check(self.feed)

    def watermark(self, as_of: str) -> Reached | Moment:
        """
        What *as_of* says of when a dump began.

        Raises:
            InvalidSync: nothing, or nothing of this feed.
        """
        begun = watermarks.parse(as_of, now_ms=now_ms())
        if isinstance(begun, Moment):
            return begun
        page, floor = self.reader().at(self.feed, begun.page), self.log().floor(self.feed)
        seconds = page.seconds if page is not None else None
        return watermarks.reached(begun, seconds, floor=floor, end=self.end())

    def checkpoint(self) -> int:
        return self.followers().checkpoints(self.feed).get(STATE, 0)

    def end(self) -> int:
        return self.reader().frontier(self.feed, self.checkpoint()).page

    def reader(self) -> Reader:
        log = self.log()
        return Reader(log, log, self.followers(), now_ms, _uncounted)

    def profiles(self) -> DynamoDBProfiles:
        return DynamoDBProfiles(self.client(), self.settings.control_table)

    def tombstones(self) -> DynamoDBTombstones:
        return DynamoDBTombstones(self.client(), self.settings.control_table)

    def corrector(self) -> Corrector:
        reader, page_ms = self.reader(), self.settings.page_ms
        return Corrector(
            self.state(),
            Filler(reader, page_ms),
            sleep_ms,
            _new_id,
            self.settings.feeds,
            self.tombstones(),
            self.writable,
        )


def on_twin(feed: str, endpoint_url: str) -> Place:
    """
    Raises:
        InvalidFeed, UnknownFeed: the twin has no such feed.
    """
    check_name(feed)
    place = Place(feed, endpoint_url, stages.settings(_TWIN, {"TIDINGS_FEEDS": feed}))
    return place.on_its_twin()


def on_stage(feed: str, stage: str) -> Place:
    """
    Raises:
        NoStage: there is none, or it is older than this command.
        InvalidFeed, UnknownFeed: it has no such feed.
    """
    import boto3  # noqa: TID251 see above

    check_name(feed)
    outputs = stages.settings_of(stage, boto3.client("cloudformation"))
    place = Place(feed, None, stages.settings(stage, outputs))
    check_known(feed, place.settings.feeds)
    return place


def add_tables(parser: ArgumentParser) -> None:
    """The arguments of a job that `named_tables` reads."""
    for name in ("log", "state", "control"):
        parser.add_argument(f"--{name}-table", required=True)
    parser.add_argument("--region", help="of the tables, if not that of the environment")
    parser.add_argument("--endpoint-url", help="the DynamoDB of a twin instead")


def named_tables(feed: str, named: Namespace) -> Place:
    """The place of *feed* by the arguments of `add_tables`. Raises as `on_tables`."""
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
) -> Place:
    """
    The place with these tables, for a job that reads them and changes nothing.

    Raises:
        InvalidFeed: not a feed name.
    """
    check_name(feed)
    names = {"LOG": log, "STATE": state, "CONTROL": control}
    tables = {f"TIDINGS_{name}_TABLE": table for name, table in names.items()}
    settings = stages.settings(_TABLES, {"TIDINGS_FEEDS": feed} | tables)
    return Place(feed, endpoint_url, settings, region)


def _new_id() -> str:
    return os.urandom(16).hex()


def _uncounted(metric: str, value: int) -> None:
    """What a sync did is in its summary."""
