"""
What is deployed: tables, functions, routes, event sources, schedules. Data only.

`infra/` turns it into CloudFormation and `tidings.twin` runs it on one machine; both read
this page and nothing else, so that they cannot drift.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tidings.core import limits
from tidings.core.sync.workflow import PLANS
from tidings.http.routes import DEFAULT_PATH as DEFAULT_PATH
from tidings.http.routes import HTTP_ROUTES as HTTP_ROUTES
from tidings.http.routes import SOCKET_ROUTES as SOCKET_ROUTES
from tidings.http.routes import HttpRoute as HttpRoute
from tidings.http.routes import SocketRoute as SocketRoute


@dataclass(frozen=True, slots=True)
class Table:
    """
    A DynamoDB table. Key types are `S` or `N`; *setting* is the variable with its name.
    *recoverable*: what it holds is worth being restored to a moment.
    """

    name: str
    setting: str
    partition_key: str
    sort_key: tuple[str, Literal["S", "N"]]
    ttl_attribute: str
    stream: bool = False
    recoverable: bool = True


@dataclass(frozen=True, slots=True)
class Grant:
    """DynamoDB actions on one table; nothing else is allowed."""

    table: str
    actions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Function:
    """
    One deployed Lambda function, `functions/<folder>/handler.py`; *folder* defaults to the name.

    *sockets* may post to WebSocket connections; *invokes* names functions it may wake.
    *streams* answers by response streaming (an ASGI app) instead of a handler. *endless*: so long
    that no API would wait for it, and clients go to the function's own address.
    *reads* are prefixes of the stage's bucket for syncs whose objects it may read.
    *archive* is what it may do with the archive: `read`, `write`, or nothing.
    *coordinates*: it may use the table where leaders are elected, if there is one.
    *environment* holds settings of this function alone.
    """

    name: str
    timeout_s: int
    grants: tuple[Grant, ...]
    folder: str = ""
    memory_mb: int = 512
    sockets: bool = False
    invokes: tuple[str, ...] = ()
    streams: bool = False
    endless: bool = False
    reads: tuple[str, ...] = ()
    archive: str = ""
    coordinates: bool = False
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", self.folder or self.name)


KINDS = ("INSERT", "MODIFY", "REMOVE")  # of records, as a stream names them


@dataclass(frozen=True, slots=True)
class StreamSource:
    """
    A DynamoDB stream that invokes a function.

    Reads from TRIM_HORIZON, splits a failing batch, reports single items, gives a record up
    after *age_max_s* or *retries_max* and sends it to S3: a wake-up is safe to lose. Records of
    other *kinds* invoke nothing.
    """

    table: str
    function: str
    batch_size: int
    window_s: int
    age_max_s: int
    retries_max: int
    kinds: tuple[str, ...] = KINDS


@dataclass(frozen=True, slots=True)
class Schedule:
    function: str
    every_minutes: int


_GET = ("dynamodb:GetItem",)
_QUERY = ("dynamodb:Query",)
_READ = _GET + _QUERY
_PUT = ("dynamodb:PutItem",)
_UPDATE = ("dynamodb:UpdateItem",)
_DELETE = ("dynamodb:DeleteItem",)
_SCAN = ("dynamodb:Scan",)
_BATCH_GET = ("dynamodb:BatchGetItem",)
_BATCH_WRITE = ("dynamodb:BatchWriteItem",)


def _grants(**tables: tuple[str, ...]) -> tuple[Grant, ...]:
    return tuple(Grant(table, actions) for table, actions in tables.items())


# What the job of a sync may do: `tidings.sync.emr`.
JOB_GRANTS = _grants(log=_READ, state=_READ, control=_READ)

# What that of the tables may do, beside the archive: `tidings.lake.emr`.
LAKE_GRANTS = _grants(log=_READ, state=_READ, control=_READ)

TABLES = (
    Table("log", "TIDINGS_LOG_TABLE", "feed", ("page", "N"), "expires", stream=True),
    Table("state", "TIDINGS_STATE_TABLE", "bucket", ("key", "S"), "expires"),
    Table("control", "TIDINGS_CONTROL_TABLE", "kind", ("name", "S"), "expires"),
    # Of connections of a moment nothing is left: a restored stage begins without (RUNBOOKS.md).
    Table(
        "connections",
        "TIDINGS_CONNECTIONS_TABLE",
        "kind",
        ("name", "S"),
        "expires",
        recoverable=False,
    ),
    Table("outbox", "TIDINGS_OUTBOX_TABLE", "feed", ("id", "S"), "expires", stream=True),
)

# Where leaders of chained feeds are elected: one table for all who may lead (CHAINING.md).
COORDINATION_TABLE = Table("seats", "", "kind", ("name", "S"), "expires")
COORDINATION_ACTIONS = (*_READ, *_PUT)

# To append: take a number, keep a claim, put a page. Functions that serve clients also count what
# keys with a rate have used, in `control`.
_APPENDS = _grants(log=_QUERY + _PUT, control=_UPDATE + _PUT + _GET)

# What the app that streams reads; it counts its streams and their events.
_STREAMS = _grants(log=_QUERY, state=_QUERY, control=_READ + _UPDATE + _DELETE)

FUNCTIONS = (
    Function(
        "ingest",
        timeout_s=10,
        # For keys bounded by parents it looks at the objects that they would change.
        grants=_grants(log=_QUERY + _PUT, control=_READ + _UPDATE + _PUT, state=_BATCH_GET),
    ),
    Function(
        "follow-state",
        folder="follow",
        timeout_s=limits.FOLLOW_TIMEOUT_S,
        memory_mb=1024,
        # To count sums that nobody knows it reads the state.
        grants=_grants(
            log=_QUERY + _PUT, state=_QUERY + _BATCH_GET + _PUT, control=_READ + _UPDATE
        ),
        invokes=("follow-state", "follow-push"),
        environment={"TIDINGS_FOLLOWER": "state"},
    ),
    Function(
        "follow-push",
        folder="follow",
        timeout_s=limits.FOLLOW_TIMEOUT_S,
        memory_mb=1024,
        grants=_grants(
            log=_QUERY + _PUT,
            state=_QUERY,
            control=_READ + _UPDATE,
            connections=_READ + _PUT + _DELETE,
        ),
        sockets=True,
        invokes=("follow-push",),
        environment={"TIDINGS_FOLLOWER": "push"},
    ),
    Function(
        "follow-archive",
        folder="follow",
        timeout_s=limits.FOLLOW_TIMEOUT_S,
        memory_mb=1024,
        grants=_grants(log=_QUERY, control=_READ + _UPDATE),
        invokes=("follow-archive",),
        archive="write",
        environment={"TIDINGS_FOLLOWER": "archive"},
    ),
    Function(
        "follow-relay",
        folder="relay",
        timeout_s=limits.RELAY_TIMEOUT_S,
        grants=_grants(log=_QUERY + _PUT, state=_QUERY + _PUT, control=_GET + _PUT + _UPDATE),
        invokes=("follow-relay", "follow-state", "follow-push"),
        coordinates=True,
    ),
    Function("connect", timeout_s=5, memory_mb=256, grants=_grants(connections=_PUT)),
    Function("disconnect", timeout_s=5, memory_mb=256, grants=_grants(connections=_GET + _DELETE)),
    Function(
        "receive",
        timeout_s=10,
        grants=_grants(log=_QUERY, control=_READ + _UPDATE, connections=_GET + _PUT + _DELETE),
        sockets=True,
        invokes=("replay", "follow-push"),
        archive="read",
    ),
    Function(
        "replay",
        timeout_s=limits.REPLAY_TIMEOUT_S,
        memory_mb=1024,
        grants=_grants(
            log=_QUERY, state=_QUERY, control=_READ + _UPDATE, connections=_GET + _PUT + _DELETE
        ),
        sockets=True,
        invokes=("replay", "follow-push"),
        archive="read",
    ),
    Function("stream", timeout_s=900, grants=_STREAMS, streams=True, endless=True, archive="read"),
    # The same app once more: instances of `stream` are held by readers who may have left, and what
    # is answered within half a minute must not wait for them.
    Function(
        "list",
        folder="stream",
        timeout_s=limits.LIST_TIMEOUT_S,
        grants=_STREAMS,
        streams=True,
        archive="read",
    ),
    Function(
        "correct",
        timeout_s=limits.CORRECT_TIMEOUT_S,
        memory_mb=1024,
        grants=_grants(log=_QUERY + _PUT, state=_BATCH_GET, control=_READ + _UPDATE),
        reads=(PLANS,),
    ),
    Function(
        "amend",
        timeout_s=limits.AMEND_TIMEOUT_S,
        memory_mb=1024,
        grants=_grants(log=_QUERY + _PUT, state=_BATCH_GET, control=_READ + _UPDATE),
    ),
    Function("steer", timeout_s=30, grants=_grants(control=_READ), reads=(PLANS,)),
    Function(
        "propose",
        timeout_s=20,  # its webhooks have ten seconds
        grants=_APPENDS,
    ),
    Function("publish", timeout_s=10, grants=_APPENDS),
    Function(
        "forward",
        timeout_s=55,
        grants=_grants(
            log=_QUERY + _PUT, control=_UPDATE + _PUT + _GET, outbox=_QUERY + _PUT + _DELETE
        ),
    ),
    Function(
        "browse",
        timeout_s=20,
        grants=_grants(state=_QUERY + _BATCH_GET, control=_READ + _UPDATE, connections=_QUERY),
    ),
    Function(
        "administer",
        timeout_s=10,
        memory_mb=256,
        grants=_grants(log=_QUERY, control=_READ + _PUT + _UPDATE),
    ),
    Function(
        "consume",
        timeout_s=10,
        memory_mb=256,
        grants=_grants(log=_QUERY, control=_READ + _PUT + _UPDATE + _DELETE),
    ),
    Function(
        "supervise",
        timeout_s=10,
        memory_mb=256,
        # A feed that yields ends with a page that holds nothing.
        grants=_grants(log=_QUERY + _PUT, control=_GET + _PUT + _UPDATE),
        invokes=("follow-relay",),
        coordinates=True,
    ),
    Function(
        "index",
        timeout_s=limits.INDEX_TIMEOUT_S,
        grants=_grants(log=_QUERY, state=_QUERY + _BATCH_WRITE, control=_READ),
    ),
    Function("report", timeout_s=10, memory_mb=256, grants=_grants(log=_QUERY, control=_READ)),
    Function(
        "sweep",
        timeout_s=55,
        grants=_grants(
            log=_QUERY + _UPDATE,
            state=_QUERY,
            control=_READ + _UPDATE,
            connections=_READ + _PUT + _DELETE + _SCAN,
            outbox=_QUERY,
        ),
        sockets=True,
        invokes=(
            *("follow-state", "follow-push", "follow-archive", "follow-relay"),
            *("replay", "index", "forward"),
        ),
    ),
)

# Deployed once for each table that produces (docs/guides/CAPTURES.md), under a name of its own.
CAPTURE = Function("capture", timeout_s=55, grants=_APPENDS + _grants(outbox=_PUT + _DELETE))

# A page is written once, and its expiry is no news. A message of the outbox may be put again.
STREAM_SOURCES = (
    StreamSource("log", "follow-state", 100, 0, 3600, 10, kinds=("INSERT",)),
    StreamSource("log", "follow-push", 100, 0, 3600, 10, kinds=("INSERT",)),
    StreamSource("outbox", "forward", 100, 0, 3600, 10, kinds=("INSERT", "MODIFY")),
)

# Here a record is not just a wake-up: it alone tells of a write. One that no operation can be made
# of is put aside at once, so a failure is transient: it is retried for half of a stream's day.
CAPTURE_SOURCE = StreamSource(
    "", CAPTURE.name, batch_size=1000, window_s=0, age_max_s=12 * 3600, retries_max=10_000
)

# All else that has to come round is woken by it, where there is something to do.
SCHEDULES = (Schedule("sweep", every_minutes=1),)
