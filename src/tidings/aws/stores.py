"""The stores of a stage on DynamoDB and S3, and its connections to functions and WebSockets."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from tidings.assembly.stores import Views
from tidings.aws import clients

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_dynamodb import DynamoDBClient

    from tidings.aws.config.settings import Settings
    from tidings.aws.dynamodb.connections import (
        DynamoDBConnections,
        DynamoDBInbox,
        DynamoDBSubscriptions,
    )
    from tidings.aws.dynamodb.counters import DynamoDBCounters
    from tidings.aws.dynamodb.due import DynamoDBDueFeeds
    from tidings.aws.dynamodb.erasures import DynamoDBErasures, DynamoDBRewrites
    from tidings.aws.dynamodb.followers import DynamoDBFollowers
    from tidings.aws.dynamodb.keys import DynamoDBKeyUsage
    from tidings.aws.dynamodb.log import DynamoDBClaims, DynamoDBLog, DynamoDBNumbers
    from tidings.aws.dynamodb.outbox import DynamoDBOutbox
    from tidings.aws.dynamodb.records import DynamoDBRecords
    from tidings.aws.dynamodb.registry import DynamoDBRegistry
    from tidings.aws.dynamodb.relays import DynamoDBRelays
    from tidings.aws.dynamodb.state import (
        DynamoDBRemovedParents,
        DynamoDBState,
        DynamoDBSums,
    )
    from tidings.aws.dynamodb.tags import DynamoDBTags
    from tidings.aws.sockets import ApiGatewaySockets
    from tidings.aws.wakeups import LambdaWaker
    from tidings.core.archive.segments import ArchiveStore
    from tidings.core.effects import Clock, Runtime
    from tidings.core.erasure.records import Ledger
    from tidings.core.feeds.records import FeedData
    from tidings.core.log.reader import Reader
    from tidings.core.replication.election import Coordinator

# Time limit to connect to API Gateway, and again for its answer. It is short: after the time limit
# of a run, a connection may still need `limits.SEND_ATTEMPTS_MAX` attempts to close it, which must
# end before Lambda kills the function.
_SOCKET_S = 1


class StageStores(Views):
    """Implements `Stores`. Each store is imported and connected on first use.

    *client* returns the client of most stores. A store with unconditional writes uses a client
    without retries (`clients.dynamodb_once`), because a late first attempt could undo a later
    write.
    """

    replay_room = None

    def __init__(
        self,
        settings: Settings,
        client: Callable[[], DynamoDBClient] = clients.dynamodb,
    ) -> None:
        self._settings, self._client = settings, client

    @cached_property
    def without_retries(self) -> StageStores:
        return StageStores(self._settings, clients.dynamodb_once)

    @cached_property
    def log(self) -> DynamoDBLog:
        from tidings.aws.dynamodb.log import DynamoDBLog

        return DynamoDBLog(self._client(), self._settings.log_table, self._settings.control_table)

    def reader(self, clock: Clock) -> Reader:
        """Return a reader of the log for a program without metrics."""
        from tidings.core.effects import discard_count
        from tidings.core.log.reader import Reader

        return Reader(log=self.log, checkpoints=self.followers, clock=clock, count=discard_count)

    @cached_property
    def numbers(self) -> DynamoDBNumbers:
        from tidings.aws.dynamodb.log import DynamoDBNumbers
        from tidings.aws.effects import sleep_ms

        tables = self._settings.log_table, self._settings.control_table
        return DynamoDBNumbers(self._client(), *tables, sleep_ms)

    @cached_property
    def claims(self) -> DynamoDBClaims:
        from tidings.aws.dynamodb.log import DynamoDBClaims

        return DynamoDBClaims(self._client(), self._settings.control_table)

    @cached_property
    def due_feeds(self) -> DynamoDBDueFeeds:
        from tidings.aws.dynamodb.due import DynamoDBDueFeeds

        settings = self._settings
        return DynamoDBDueFeeds(self._client(), settings.control_table, settings.feeds)

    @cached_property
    def followers(self) -> DynamoDBFollowers:
        from tidings.aws.dynamodb.followers import DynamoDBFollowers

        return DynamoDBFollowers(self._client(), self._settings.control_table)

    @cached_property
    def counters(self) -> DynamoDBCounters:
        from tidings.aws.dynamodb.counters import DynamoDBCounters

        return DynamoDBCounters(clients.dynamodb_once, self._settings.control_table)

    @cached_property
    def state(self) -> DynamoDBState:
        from tidings.aws.dynamodb.state import DynamoDBState

        return DynamoDBState(self._client(), self._settings.state_table)

    @cached_property
    def removed_parents(self) -> DynamoDBRemovedParents:
        from tidings.aws.dynamodb.state import DynamoDBRemovedParents

        return DynamoDBRemovedParents(self._client(), self._settings.state_table)

    @cached_property
    def sums(self) -> DynamoDBSums:
        from tidings.aws.dynamodb.state import DynamoDBSums

        return DynamoDBSums(self._client(), self._settings.control_table)

    @cached_property
    def tags(self) -> DynamoDBTags:
        from tidings.aws.dynamodb.tags import DynamoDBTags

        return DynamoDBTags(clients.dynamodb_once(), self._settings.state_table)

    @cached_property
    def records(self) -> DynamoDBRecords:
        from tidings.aws.dynamodb.records import DynamoDBRecords

        return DynamoDBRecords(self._client(), self._settings.control_table)

    @cached_property
    def key_usage(self) -> DynamoDBKeyUsage:
        from tidings.aws.dynamodb.keys import DynamoDBKeyUsage

        return DynamoDBKeyUsage(self._client(), self._settings.control_table)

    @cached_property
    def erasures(self) -> DynamoDBErasures:
        from tidings.aws.dynamodb.erasures import DynamoDBErasures

        return DynamoDBErasures(self.records)

    @cached_property
    def erasure_ledger(self) -> Ledger | None:
        """Return the ledger next to the archive; None if the stage has no archive."""
        if not self._settings.archive:
            return None
        from tidings.aws.archives import open_ledger

        return open_ledger(self._settings.archive, clients.objects)

    def feed_data(
        self,
        disconnect: Callable[[str, str], None],
        outbox_until: Callable[[str], int],
        runtime: Runtime,
    ) -> FeedData:
        """Return the data of feeds in the tables and the archive; see `DynamoDBFeedData`."""
        from tidings.aws.archives import open_files
        from tidings.aws.dynamodb.removal import DynamoDBFeedData
        from tidings.core.feeds.remover import FeedDataParts

        settings = self._settings
        tables = DynamoDBFeedData(self._client(), settings, disconnect, outbox_until, runtime)
        if not settings.archive:
            return tables
        # The tables have the credentials, so they are last; see `removal`.
        return FeedDataParts(
            [open_files(settings.archive, clients.objects, runtime.steady), tables]
        )

    @cached_property
    def rewrites(self) -> DynamoDBRewrites:
        from tidings.aws.dynamodb.erasures import DynamoDBRewrites

        tables = self._settings.log_table, self._settings.state_table
        return DynamoDBRewrites(self._client(), *tables, self.consumers)

    @cached_property
    def relays(self) -> DynamoDBRelays:
        from tidings.aws.dynamodb.relays import DynamoDBRelays

        tables = self._settings.log_table, self._settings.control_table
        return DynamoDBRelays(self._client(), *tables)

    @cached_property
    def connections(self) -> DynamoDBConnections:
        from tidings.aws.dynamodb.connections import DynamoDBConnections

        return DynamoDBConnections(self._client(), self._settings.connections_table)

    @cached_property
    def inbox(self) -> DynamoDBInbox:
        from tidings.aws.dynamodb.connections import DynamoDBInbox

        return DynamoDBInbox(self._client(), self._settings.connections_table)

    @cached_property
    def subscriptions(self) -> DynamoDBSubscriptions:
        from tidings.aws.dynamodb.connections import DynamoDBSubscriptions

        return DynamoDBSubscriptions(self._client(), self._settings.connections_table)

    @cached_property
    def registry(self) -> DynamoDBRegistry:
        from tidings.aws.dynamodb.registry import DynamoDBRegistry

        return DynamoDBRegistry(self._client(), self._settings.connections_table)

    @cached_property
    def outbox(self) -> DynamoDBOutbox:
        from tidings.aws.dynamodb.outbox import DynamoDBOutbox

        return DynamoDBOutbox(self._client(), self._settings.outbox_table)

    @cached_property
    def waker(self) -> LambdaWaker:
        from tidings.aws.wakeups import LambdaWaker

        return LambdaWaker(clients.functions(), self._settings.function_prefix)

    @cached_property
    def coordinator(self) -> Coordinator | None:
        at = self._settings.coordinator
        if at is None:
            return None
        from tidings.aws.dynamodb.clusters import ClusterRecords
        from tidings.core.replication.election import Coordinator

        return Coordinator(ClusterRecords(clients.coordination(at.region, at.endpoint), at.table))

    @cached_property
    def archive(self) -> ArchiveStore | None:
        if not self._settings.archive:
            return None
        from tidings.aws.archives import open_archive

        return open_archive(self._settings.archive, clients.objects)

    @cached_property
    def sockets(self) -> ApiGatewaySockets:
        """Return a sender that does not retry, because the core retries and counts the attempts."""
        from tidings.aws.sockets import ApiGatewaySockets

        return ApiGatewaySockets(self._settings.sockets_url, _SOCKET_S, clients.ca_certs())

    @property
    def replay_sockets(self) -> ApiGatewaySockets:
        return self.sockets
