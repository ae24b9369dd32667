"""The resources of a stage, as data: tables, functions, event sources and schedules.

`infra/` translates these resources to CloudFormation, and `tests/twin` runs them on one machine.
Both read the resources only from this module, so that a stage and its tests cannot diverge.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tidings.core import limits
from tidings.core.sync.workflow import PLANS
from tidings.http.routes import HTTP_ROUTES as HTTP_ROUTES
from tidings.http.routes import SOCKET_ROUTES as SOCKET_ROUTES
from tidings.http.routes import SocketRoute as SocketRoute
from tidings.http.wire import DEFAULT_PATH as DEFAULT_PATH
from tidings.http.wire import HttpRoute as HttpRoute


@dataclass(frozen=True, slots=True)
class Table:
    """A DynamoDB table.

    *setting* is the environment variable with the name of the table. The partition key has the type
    `S` (text); *sort_key* has the name and the type of the sort key. If *recoverable* is True, the
    table has point-in-time recovery.
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
    """The actions of DynamoDB that are allowed on one table."""

    table: str
    actions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Function:
    """A Lambda function with the code `functions/<folder>/handler.py`; *folder* defaults to *name*.

    With *sockets*, the function may post to WebSocket connections. *invokes* lists the functions
    that it may invoke. With *streams*, the code is an ASGI app with response streaming, and not a
    handler. An *endless* function runs longer than API Gateway waits, so clients call the URL of
    the function itself. *reads* are the prefixes that the function may read in the stage's bucket
    for syncs. *archive* is its access to the archive: `read`, `write`, `ledger` (to add erasures to
    the ledger next to the archive), `rewrite` (all of these), `remove` or "". With *coordinates*,
    it may use the table of the leader election, if the stage has one. *environment* has the
    settings of this function alone.
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


KINDS = ("INSERT", "MODIFY", "REMOVE")  # event names of stream records


@dataclass(frozen=True, slots=True)
class StreamSource:
    """A DynamoDB stream that invokes a function.

    Reading starts with the oldest record (TRIM_HORIZON). The function reports the records that it
    could not handle, and Lambda splits a batch that fails. A record that still fails after
    *age_max_s* or after *retries_max* attempts is moved to S3. This is safe for a wake-up, which
    may be lost. Only records of *kinds* invoke the function.
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
_CHECK = ("dynamodb:ConditionCheckItem",)
_SCAN = ("dynamodb:Scan",)
_BATCH_GET = ("dynamodb:BatchGetItem",)
_BATCH_WRITE = ("dynamodb:BatchWriteItem",)


def _grants(**tables: tuple[str, ...]) -> tuple[Grant, ...]:
    return tuple(Grant(table, actions) for table, actions in tables.items())


# The permissions of the job of a sync, `tidings.sync.stage`.
JOB_GRANTS = _grants(log=_READ, state=_READ, control=_READ)

# The permissions of the job that updates the lake's tables (`tidings.lake.emr`), in addition to
# those for the archive. When it has dropped the tables of a deleted feed, it writes the feed's
# record, and deletes the mark of the removal.
LAKE_GRANTS = _grants(log=_READ, state=_READ, control=_READ + _UPDATE + _DELETE)

TABLES = (
    Table("log", "TIDINGS_LOG_TABLE", "feed", ("page", "N"), "expires", stream=True),
    Table("state", "TIDINGS_STATE_TABLE", "bucket", ("key", "S"), "expires"),
    Table("control", "TIDINGS_CONTROL_TABLE", "kind", ("name", "S"), "expires"),
    # Connections need no recovery, because clients of a restored stage reconnect (RUNBOOKS.md).
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

# The table of the leader election of chained feeds, which all members of a cluster share
# (docs/guides/CHAINING.md).
COORDINATION_TABLE = Table("seats", "", "kind", ("name", "S"), "expires")
COORDINATION_ACTIONS = (*_QUERY, *_UPDATE)

# The permissions to append: to take a page number, store a claim and put a page. Functions that
# serve clients also count the requests of keys with a rate, in `control`.
_APPENDS = _grants(log=_QUERY + _PUT, control=_UPDATE + _PUT + _GET)

# The permissions of the streaming app, which also counts its streams and their events.
_STREAMS = _grants(log=_QUERY, state=_QUERY, control=_READ + _UPDATE + _DELETE)

FUNCTIONS = (
    Function(
        "ingest",
        timeout_s=10,
        # If a key is restricted to parents, `ingest` reads the objects that a post would change.
        grants=_grants(log=_QUERY + _PUT, control=_READ + _UPDATE + _PUT, state=_BATCH_GET),
    ),
    Function(
        "follow-state",
        folder="follow",
        timeout_s=limits.FOLLOW_TIMEOUT_S,
        memory_mb=1024,
        # The follower `state` reads the state to compute missing sums, and records erasures.
        grants=_grants(
            log=_QUERY + _PUT,
            state=_QUERY + _BATCH_GET + _PUT,
            control=_READ + _UPDATE + _CHECK,
        ),
        invokes=("follow-state", "follow-push", "erase"),
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
        grants=_grants(log=_QUERY + _PUT, state=_QUERY + _PUT, control=_GET + _UPDATE),
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
    # A second deployment of the app of `stream`, for requests that end within half a minute. These
    # requests must not wait for instances of `stream`, which disconnected readers may still occupy.
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
        # If the request of an erasure has an Idempotency-Key, its claim is put. The creation of a
        # feed after a deletion writes an empty page, and deletes the mark of the removal.
        grants=_grants(
            log=_QUERY + _PUT, state=_BATCH_GET, control=_READ + _UPDATE + _PUT + _DELETE
        ),
        invokes=("remove",),
        archive="ledger",
    ),
    Function("steer", timeout_s=30, grants=_grants(control=_READ), reads=(PLANS,)),
    Function(
        "propose",
        timeout_s=20,  # because operators' webhooks may take ten seconds
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
        grants=_grants(log=_QUERY, control=_READ + _UPDATE),
    ),
    Function(
        "consume",
        timeout_s=10,
        memory_mb=256,
        grants=_grants(log=_QUERY, control=_READ + _UPDATE + _DELETE),
    ),
    Function(
        "supervise",
        timeout_s=10,
        memory_mb=256,
        # A feed that yields to a successor ends with an empty page, which `supervise` writes.
        grants=_grants(log=_QUERY + _PUT, control=_READ + _UPDATE),
        invokes=("follow-relay",),
        coordinates=True,
    ),
    Function(
        "index",
        timeout_s=limits.INDEX_TIMEOUT_S,
        grants=_grants(log=_QUERY, state=_QUERY + _BATCH_WRITE, control=_READ),
    ),
    Function(
        "erase",
        timeout_s=limits.ERASE_TIMEOUT_S,
        memory_mb=1024,  # for a part of the archive, unpacked, and its new content
        grants=_grants(
            log=_QUERY + _PUT + _UPDATE,
            state=_QUERY + _BATCH_GET + _UPDATE + _DELETE,
            control=_READ + _UPDATE + _PUT + _DELETE,
        ),
        invokes=("follow-state", "follow-push", "follow-archive"),
        archive="rewrite",
    ),
    Function(
        "remove",
        timeout_s=limits.REMOVE_TIMEOUT_S,
        grants=_grants(
            log=_QUERY + _BATCH_WRITE,
            state=_QUERY + _BATCH_WRITE,
            # A record and the mark of its removal are written in a transaction.
            control=_READ + _SCAN + _UPDATE + _DELETE + _BATCH_WRITE,
            connections=_GET + _DELETE + _SCAN + _BATCH_WRITE,
            outbox=_QUERY + _BATCH_WRITE,
        ),
        sockets=True,
        archive="remove",
    ),
    Function("report", timeout_s=10, memory_mb=256, grants=_grants(log=_QUERY, control=_READ)),
    Function(
        "sweep",
        timeout_s=55,
        grants=_grants(
            log=_QUERY + _UPDATE,
            state=_QUERY,
            control=_READ + _UPDATE + _DELETE,
            connections=_READ + _PUT + _DELETE + _SCAN,
            outbox=_QUERY + _SCAN,
        ),
        sockets=True,
        invokes=(
            *("follow-state", "follow-push", "follow-archive", "follow-relay"),
            *("replay", "index", "forward", "erase", "remove"),
        ),
    ),
)

# The function of captures. It is deployed once for each captured table, under a name of its own
# (docs/guides/CAPTURES.md).
CAPTURE = Function("capture", timeout_s=55, grants=_APPENDS + _grants(outbox=_PUT + _DELETE))

# Only a new page wakes followers, because a stored page is changed only to extend its expiry, and
# deleted only when it has expired. A message in the outbox wakes `forward` also if a producer puts
# the message again.
STREAM_SOURCES = (
    StreamSource(
        table="log",
        function="follow-state",
        batch_size=100,
        window_s=0,
        age_max_s=3600,
        retries_max=10,
        kinds=("INSERT",),
    ),
    StreamSource(
        table="log",
        function="follow-push",
        batch_size=100,
        window_s=0,
        age_max_s=3600,
        retries_max=10,
        kinds=("INSERT",),
    ),
    StreamSource(
        table="outbox",
        function="forward",
        batch_size=100,
        window_s=0,
        age_max_s=3600,
        retries_max=10,
        kinds=("INSERT", "MODIFY"),
    ),
)

# The stream of a captured table. Its records have the data of writes, so they must not be lost,
# unlike wake-ups. The function parks a record that cannot be converted to operations. Any other
# failure is transient, so the record is retried for half of the stream's 24 hours.
CAPTURE_SOURCE = StreamSource(
    "", CAPTURE.name, batch_size=1000, window_s=0, age_max_s=12 * 3600, retries_max=10_000
)

# The sweep wakes all other recurring work that is due.
SCHEDULES = (Schedule("sweep", every_minutes=1),)
