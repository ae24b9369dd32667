"""The tables of a feed on a stage, an endpoint or a server, to verify, rebuild or restore it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click

from tidings.admin.target import STORES, endpoint_client, name_in_stores, one_sentence_errors
from tidings.aws.config import stages
from tidings.aws.effects import now_ms
from tidings.client.cli.options import Command, Given, adding, data_option, locate
from tidings.core.effects import discard_count
from tidings.core.log.reader import Reader
from tidings.core.replication.relay import Wanted
from tidings.core.state.tombstones import TombstoneStore
from tidings.http.settings import Shared
from tidings.server import operating
from tidings.server.recovery import Recovery
from tidings.server.sqlite.database import Database
from tidings.server.sqlite.log import Numbers, SqliteFollowers, SqliteLog, SqliteRelays
from tidings.server.sqlite.records import SqliteRecords
from tidings.server.sqlite.state import SqliteState

if TYPE_CHECKING:
    from tidings.aws.config.settings import Settings
    from tidings.aws.dynamodb.state import DynamoDBState
    from tidings.aws.stores import StageStores

# boto3 is imported by the functions that use it, so that help texts do not need it.
_READ_S = 10  # long, because bulk reads may be slow; a wrong endpoint already fails on connect
_ATTEMPTS = 5  # many, because reads may be throttled, and no person waits for a single read
_CONNECTIONS = 16  # one for each thread that repairs rows, and a few more


@dataclass(frozen=True)
class StateTarget:
    """The tables of the feed *name*, named by *settings* and accessed with *client*.

    *used* has the names of the stage's own tables if *settings* has those of restored tables.
    """

    name: str
    client: Any
    settings: Settings
    used: Settings | None = None

    @cached_property
    def feed(self) -> str:
        """Return the key of the feed, as these tables have it: tables may be of an earlier time.

        Raises:
            UnknownFeed, FeedDeleted: the tables have no such feed.
        """
        from tidings.aws.dynamodb.records import find_key

        table, deployed = self.settings.control_table, self.settings.feeds
        return find_key(self.client, table, self.name, deployed)

    def tombstone_ms(self) -> int:
        """Return how long repaired tombstones last: the longer of setting and stored one."""
        remembered = self.stores.tombstones.remembered(self.feed)
        return max(self.settings.tombstone_ms, remembered.life_ms if remembered else 0)

    @cached_property
    def stores(self) -> StageStores:
        from tidings.aws.stores import StageStores

        return StageStores(self.settings, lambda: self.client)

    def reader(self) -> Reader:
        return self.stores.reader(now_ms)

    def unwritten(self) -> Sequence[Numbers]:
        """Return (), because a follower fills each missing page that its writer does not write."""
        return ()

    def fill(self) -> Sequence[Numbers]:
        """Return (), because a follower fills missing pages; see `unwritten`."""
        return ()

    def states(self) -> DynamoDBState:
        """Return the store of the state. All its writes are conditional and may be repeated."""
        return self.stores.state


@dataclass(frozen=True, slots=True)
class ServerState:
    """The tables of *feed* in the file of a server; the file is open as *database*."""

    feed: str
    database: Database

    def followers(self) -> SqliteFollowers:
        return SqliteFollowers(self.database)

    def reader(self) -> Reader:
        log = SqliteLog(self.database)
        return Reader(log=log, checkpoints=self.followers(), clock=now_ms, count=discard_count)

    def states(self) -> SqliteState:
        return SqliteState(self.database)

    def unwritten(self) -> Sequence[Numbers]:
        """Return the page numbers that a killed process reserved and did not write."""
        return self._recovery().unwritten(self.feed)

    def fill(self) -> Sequence[Numbers]:
        """Write an empty page under each unwritten number; return these numbers."""
        return self._recovery().fill(self.feed)

    def _recovery(self) -> Recovery:
        log = SqliteLog(self.database)
        relay = SqliteRelays(self.database, log).relay(self.feed)
        is_copy = relay.id and relay.wanted is not Wanted.PROMOTED
        return Recovery(
            database=self.database,
            log=log,
            checkpoints=self.followers(),
            chained={self.feed} if is_copy else frozenset[str](),
            clock=now_ms,
            page_ms=self._settings().page_ms,
        )

    def tombstone_ms(self) -> int:
        """Return how long repaired tombstones live: the longer of default and stored one."""
        remembered = TombstoneStore(SqliteRecords(self.database)).remembered(self.feed)
        return max(self._settings().tombstone_ms, remembered.life_ms if remembered else 0)

    @staticmethod
    def _settings() -> Shared:
        """Return the default settings of a server."""
        return Shared.read({})


def find(feed: str, stage: str | None, endpoint_url: str | None) -> StateTarget:
    """Return the tables of *feed* on a stage or at a DynamoDB endpoint.

    Raises:
        NoStage: the stage does not exist, or is older than this command.
    """
    import boto3  # noqa: TID251 (the credentials and profile of the operator, not of a function)
    from botocore.config import Config  # noqa: TID251 (the options of the operator's client)

    from tidings.aws import clients

    config = Config(
        connect_timeout=2,
        read_timeout=_READ_S,
        retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
        max_pool_connections=_CONNECTIONS,
    )
    if stage is not None:
        outputs = stages.settings_of(stage, boto3.client("cloudformation"))
        client, settings = boto3.client("dynamodb", config=config), stages.settings(stage, outputs)
    else:
        local = config.merge(Config(proxies={}))
        client = endpoint_client(str(endpoint_url), local)
        settings = stages.settings(stages.LOCAL_STAGE, {"TIDINGS_FEEDS": feed})
    clients.read_items_raw(client)
    return StateTarget(feed, client, settings)


Examined = StateTarget | ServerState


def _restored(target: Examined, suffix: str) -> StateTarget:
    if not isinstance(target, StateTarget) or target.settings.stage == stages.LOCAL_STAGE:
        raise click.UsageError("--tables is for a --stage, not for --endpoint-url or a server")
    names = {
        f"{kind}_table": stages.table_name(target.settings.stage, kind, suffix)
        for kind in ("log", "state", "control")
    }
    settings: Settings = replace(target.settings, **names)  # type: ignore[arg-type]
    used = None if settings == target.settings else target.settings
    return replace(target, settings=settings, used=used)


def _find(given: Given, others: Given) -> Given:
    at = locate(given)
    name = name_in_stores(given, at)
    target: Examined
    if at.data:
        context = click.get_current_context()
        target = ServerState(name, context.with_resource(operating.open_stopped(at.data)))
    else:
        target = find(name, at.stage or None, at.endpoint_url)
    return {"target": target if given["tables"] is None else _restored(target, given["tables"])}


_tables_option = click.option(
    "--tables",
    metavar="SUFFIX",
    help="Use the restored tables (tidings-STAGE-log-SUFFIX, ...) instead of the stage's.",
)


def state_options(command: Command) -> Command:
    """Add the options of a stage or endpoint to a command, which receives *target*.

    Its option --tables selects tables of a stage that were restored under other names, by the
    suffix of these names.
    """
    return one_sentence_errors()(adding(_find, *STORES, _tables_option)(command))


def examined_options(command: Command) -> Command:
    """Add the options of `state_options` and --data."""
    return one_sentence_errors()(adding(_find, *STORES, data_option, _tables_option)(command))
