"""Remove the data of a deleted feed from the tables of a stage.

The items of a feed are in partitions of their own, except for those that are found by a scan: the
connections of its clients, and in the control table all items except pages, rows and messages. The
names of some of their partitions contain names of consumers or keys that may be removed already, so
no query finds them. The scan also finds the items of a new kind. It reads the table once, at half a
read unit for each 4 KB.

| location    | what                                                                        |
|-------------|-----------------------------------------------------------------------------|
| connections | the clients, which are disconnected; subscriptions, registrations           |
| log         | pages, in the control table also head, floor, renewals and claims           |
| state       | rows, removed parents, tags; in the control table sums and tombstones       |
| outbox      | pending and refused messages                                                |
| consumers   | named consumers, parked messages, notes                                     |
| followers   | leases, checkpoints, and when the sweep visits the feed                     |
| erasures    | records of erasures                                                         |
| counters    | counters of clients and requests, counts and streams of keys                |
| settings    | profile, operators' documents, relay, password of its upstream              |
| keys        | keys                                                                        |

Profile and keys are removed last, because a process that has cached the record of the feed still
checks them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tidings.aws.clients import translate_errors
from tidings.aws.dynamodb.attributes import Item, text, text_of
from tidings.aws.dynamodb.connections import (
    connection_id_of,
    inbox_kind,
    scan_end,
    scan_start,
    subscription_kind,
)
from tidings.aws.dynamodb.records import record_key
from tidings.aws.dynamodb.registry import registered_kind
from tidings.aws.dynamodb.state import row_bucket
from tidings.aws.dynamodb.table import Batches, Table, expressions
from tidings.core import limits
from tidings.core.feeds.records import Removed
from tidings.core.model.feeds import public_name
from tidings.core.replication.relay import RELAYS
from tidings.core.websocket.connections import storage_key

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from tidings.aws.config.settings import Settings
    from tidings.core.effects import Runtime

# What reports call the kinds of items in the control table; other kinds have their own names.
_LOCATIONS = {
    "head": "log",
    "floor": "log",
    "renewal": "log",
    "claim": "log",
    "remembered": "state",
    "sums": "state",
    "consumer": "consumers",
    "parked": "consumers",
    "note": "consumers",
    "follower": "followers",
    "due": "followers",
    "erasure": "erasures",
    "erased": "erasures",
    "tally": "counters",
    "keycount": "counters",
    "keyhold": "counters",
    "upstream": "settings",
    "relay": "settings",
    "sheet": "settings",
}
_LAST_KINDS = {"profile": "settings", "key": "keys"}


@dataclass(frozen=True, slots=True)
class _Query:
    """The items in one partition of a table. *names* are the two attributes of the key.

    With *is_outbox*, the partition also has messages of the feed that is created next.
    """

    location: str
    table: str
    names: tuple[str, str]
    partition: str
    is_outbox: bool = False


@dataclass(frozen=True, slots=True)
class _Scan:
    """The items of a table that meet *condition*, and are not of another feed."""

    table: str
    condition: str
    values: Item


class DynamoDBFeedData:
    """Implements `FeedData` with the tables of a stage, which *settings* name.

    *disconnect* ends the connection of a client of a feed, and removes what the tables have of it.
    *outbox_until* returns the time before which messages in the outbox for a name belong to no
    feed that exists. Queries and scans are eventually consistent, at half the price: the second
    pass finds what the first one did not see.
    """

    def __init__(
        self,
        client: DynamoDBClient,
        settings: Settings,
        disconnect: Callable[[str, str], None],
        outbox_until: Callable[[str], int],
        runtime: Runtime,
    ) -> None:
        self._client, self._runtime = client, runtime
        self._log, self._state = settings.log_table, settings.state_table
        self._control, self._connections = settings.control_table, settings.connections_table
        self._outbox = settings.outbox_table
        self._disconnect, self._outbox_until = disconnect, outbox_until
        names = self._log, self._state, self._control, self._connections, self._outbox
        self._batches = {name: Batches(client, name, runtime.sleep) for name in names if name}

    def remove(self, key: str, resume_at: str, until_ms: int) -> Removed:
        """See `FeedData`. *resume_at* has the number of a step, and the end of its scan, if any."""
        steps = list(self._steps(key))
        number, _, scanned = resume_at.partition(" ")
        at, counts = int(number or 0), Counter[str]()
        while at < len(steps):
            more = self._run(key, steps[at], scanned, counts)
            at, scanned = (at + 1, "") if more is None else (at, more)
            if self._runtime.steady() >= until_ms and at < len(steps):
                return Removed(f"{at} {scanned}".strip(), counts)
        return Removed(None, counts)

    def _steps(self, key: str) -> Iterator[_Query | _Scan]:
        yield self._of_connections(key)
        yield _Query("log", self._log, ("feed", "page"), key)
        buckets = [row_bucket(key, number) for number in range(limits.BUCKETS)]
        for bucket in (*buckets, f"{key}#left", f"{key}#tags"):
            yield _Query("state", self._state, ("bucket", "key"), bucket)
        name = public_name(key)
        if self._outbox:
            for partition in (name, f"refused#{name}"):
                names = "feed", "id"
                yield _Query("outbox", self._outbox, names, partition, is_outbox=True)
        yield self._of_control(key)
        for kind, location in _LAST_KINDS.items():
            yield _Query(location, self._control, ("kind", "name"), f"{kind}#{key}")

    def _of_connections(self, key: str) -> _Scan:
        lanes = [storage_key(key, lane) for lane in range(limits.PUSH_LANES_MAX)]
        kinds = [kind(lane) for kind in (inbox_kind, subscription_kind) for lane in lanes]
        listed, values = _listed([*kinds, registered_kind(key)])
        condition = f"#feed = :feed OR {listed}"
        return _Scan(self._connections, condition, {**values, ":feed": text(key)})

    def _of_control(self, key: str) -> _Scan:
        """Return the scan for items with the feed in their partition key, or as their feed."""
        of_relay = "(#kind = :relay AND #name = :feed)"
        condition = f"contains(#kind, :mark) OR {of_relay} OR #feed = :feed"
        values = {
            ":mark": text(f"#{key}"),
            ":relay": record_key(key, RELAYS)["kind"],
            ":feed": text(key),
        }
        return _Scan(self._control, condition, values)

    def _run(self, key: str, step: _Query | _Scan, start: str, counts: Counter[str]) -> str | None:
        """Remove the items of one request; return where to continue, None at the end."""
        if isinstance(step, _Query):
            until_ms = self._outbox_until(public_name(key)) if step.is_outbox else 0
            return self._run_query(step, until_ms, counts)
        answer = self._scan(step, start)
        self._remove_found(key, step, answer["Items"], counts)
        last = answer.get("LastEvaluatedKey")
        return scan_end(last) if last else None

    def _run_query(self, step: _Query, until_ms: int, counts: Counter[str]) -> str | None:
        table, (partition, sort) = Table(self._client, step.table), step.names
        condition, values = f"#{partition} = :partition", {":partition": text(step.partition)}
        if step.is_outbox:  # the names of messages begin with their times
            condition = f"{condition} AND #{sort} < :until"
            values[":until"] = text(f"{until_ms:013d}")
        answer = table.page(
            condition,
            values,
            f"#{partition}, #{sort}",
            consistent=False,
            Limit=limits.READ_ITEMS_MAX,
        )
        self._batches[step.table].delete(answer["Items"])
        counts[step.location] += len(answer["Items"])
        # The items are gone, so the next query begins with those that are left.
        return "" if "LastEvaluatedKey" in answer else None

    def _scan(self, step: _Scan, resume_at: str) -> Any:
        params = expressions(
            step.values, FilterExpression=step.condition, ProjectionExpression="#kind, #name"
        )
        with translate_errors():
            return self._client.scan(TableName=step.table, **params, **scan_start(resume_at))

    def _remove_found(
        self, key: str, step: _Scan, items: Sequence[Item], counts: Counter[str]
    ) -> None:
        clients = [found for item in items if (found := connection_id_of(item))]
        self._runtime.spread(partial(self._disconnect, key), clients)
        others = [item for item in items if not connection_id_of(item)]
        if step.table == self._control:
            others = [item for item in others if not _is_kept(item, key)]
            kinds = [text_of(item, "kind").partition("#")[0] for item in others]
            counts.update(_LOCATIONS.get(kind, kind) for kind in kinds)
        else:
            counts["connections"] += len(items)
        self._batches[step.table].delete(others)


def _is_kept(item: Item, key: str) -> bool:
    """Return True if an item that the scan has found is of another feed, or is removed last."""
    kind, *owners = text_of(item, "kind").split("#")
    return bool(owners) and (owners[0] != key or kind in _LAST_KINDS)


def _listed(kinds: Sequence[str]) -> tuple[str, Item]:
    """Return the condition that an item is of one of *kinds*, and its values."""
    values = {f":kind{at}": text(kind) for at, kind in enumerate(kinds)}
    return f"#kind IN ({', '.join(values)})", values
