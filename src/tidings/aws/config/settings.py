"""The settings of the functions, read once from the environment into an immutable value.

Only this module reads the environment of a function, including the variables that Lambda sets for
each call. `infra/` sets the variables of `Settings`, and docs/operations/OPERATIONS.md describes
them.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from tidings.core import limits
from tidings.core.tracing import SAMPLED
from tidings.http import settings as shared
from tidings.http.settings import Shared, setting

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network

    Networks = tuple[IPv4Network | IPv6Network, ...]

# The alias by which functions are called. It points to one version of a function's code, or to two
# versions while a new release gets a tenth of the calls (ADR 54). Only `stream` has no alias,
# because its clients use the URL of the function itself.
LIVE = "live"
METRICS_NAMESPACE = "Tidings"  # the namespace of all metrics, listed in `tidings.core.metrics`
METRICS_FOR_ALARMS = frozenset({"Attention", "Behind"})  # the metrics that every stage writes
# The variable that turns Powertools' Tracer off. A stage with `xray` sets it to `false`.
TRACER_VARIABLE = "POWERTOOLS_TRACE_DISABLED"
SERVICE_VARIABLE = "POWERTOOLS_SERVICE_NAME"  # Powertools reads the name of the service from it
ALL_METRICS, ALARM_METRICS = "all", "alarms"
_XRAY = "_X_AMZN_TRACE_ID"  # not in `SETTINGS`, because Lambda sets this variable for each call
DAY_S = 86_400  # maximum delay of the archive and of an erasure in s; logs are kept for longer


@dataclass(frozen=True, slots=True)
class CoordinatorUrl:
    """The table of the leader election. An empty *region* or *endpoint* stands for the default."""

    table: str
    region: str = ""
    endpoint: str = ""


def parse_coordinator(text: str) -> CoordinatorUrl | None:
    """Return the table named by *text*; None if *text* is empty.

    Raises:
        ValueError: *text* does not name a table.
    """
    if not text:
        return None
    with contextlib.suppress(ValueError):
        parts = urlsplit(text)
        options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
        is_table = parts.scheme == "dynamodb" and parts.netloc and not parts.path + parts.fragment
        if is_table and {*options} <= {"region", "endpoint"}:
            # The table is an ARN if it is in another account.
            return CoordinatorUrl(unquote(parts.netloc), **options)
    raise ValueError("must be dynamodb://TABLE[?region=REGION][&endpoint=URL]")


def _archive(text: str) -> str:
    try:
        if text:
            shared.parse_archive_url(text)
        return text
    except shared.WrongArchive:
        raise ValueError(shared.ARCHIVE_RULE) from None


def _proxies(text: str) -> Networks | None:
    if text == "off":
        return None
    from ipaddress import ip_network

    return tuple(ip_network(each.strip()) for each in text.split(",") if text != "direct")


_SECONDS = shared.whole(0, DAY_S, unit=1000)
_STREAM_SECONDS = shared.whole(limits.STREAM_S_MIN, limits.STREAM_S_MAX, unit=1000)


@dataclass(frozen=True, slots=True)
class Settings(Shared):
    """The settings of the functions of a stage."""

    stage: str = setting("TIDINGS_STAGE", None, "name of the stage: dev, staging, prod or local")
    log_table: str = setting("TIDINGS_LOG_TABLE", None, "table of the log's pages")
    state_table: str = setting(
        "TIDINGS_STATE_TABLE", None, "table of the latest operation of each object"
    )
    control_table: str = setting(
        "TIDINGS_CONTROL_TABLE", None, "table of counters, floors, followers and claims"
    )
    connections_table: str = setting(
        "TIDINGS_CONNECTIONS_TABLE", None, "table of WebSocket connections"
    )
    outbox_table: str = setting(
        "TIDINGS_OUTBOX_TABLE", "", "table to which other applications write operations"
    )
    function_prefix: str = setting(
        "TIDINGS_FUNCTION_PREFIX", None, "prefix of the names of functions"
    )
    sockets_url: str = setting(
        "TIDINGS_SOCKETS_URL", "", "https endpoint to post to WebSocket connections"
    )
    stream_ms: int = setting(
        "TIDINGS_STREAM_SECONDS", "120", "duration of an event stream: 60 to 840", _STREAM_SECONDS
    )
    follower: str = setting(
        "TIDINGS_FOLLOWER", "", "follower of the function: state, push or archive"
    )
    archive: str = setting(
        "TIDINGS_ARCHIVE", "", "the archive: s3://BUCKET/PREFIX or file:///FOLDER", _archive
    )
    archive_wait_ms: int = setting(
        "TIDINGS_ARCHIVE_SECONDS",
        "900",
        "longest wait for the archive in seconds, if few pages wait",
        _SECONDS,
    )
    all_metrics: bool = setting(
        "TIDINGS_METRICS",
        ALL_METRICS,
        "metrics that are written: all, or alarms (only those of alarms)",
        shared.one_of({ALL_METRICS: True, ALARM_METRICS: False}),
    )
    lag_pages_max: int = setting(
        "TIDINGS_LAG_PAGES",
        "1000",
        "pages of lag above which an alarm is raised, if the lag persists",
        shared.whole(1),
    )
    erasure_settle_ms: int = setting(
        "TIDINGS_ERASURE_SECONDS",
        str(limits.ERASE_SETTLE_S),
        "time in seconds between rewriting the log and rewriting the archive for an erasure",
        _SECONDS,
    )
    capture: str = setting(
        "TIDINGS_CAPTURE", "", "mapping of a captured table's writes to operations"
    )
    coordinator: CoordinatorUrl | None = setting(
        "TIDINGS_COORDINATOR",
        "",
        "table of leader elections: dynamodb://TABLE?region=REGION",
        parse_coordinator,
    )
    address_proxies: Networks | None = setting(
        "TIDINGS_LOG_ADDRESSES",
        "off",
        "addresses of clients in logs: off, direct, or networks of trusted proxies",
        _proxies,
    )


SETTINGS = Settings.declared()


def metrics_service(stage: str) -> str:
    """Return the value of the dimension `service`, which separates the metrics of stages."""
    return f"tidings-{stage}"


def counts_cold_starts() -> bool:
    """Return True if TIDINGS_METRICS is `all`."""
    return os.environ.get("TIDINGS_METRICS") == ALL_METRICS


def is_traced() -> bool:
    """Return True in a stage with `xray`, which has the layer of X-Ray's SDK."""
    return os.environ.get(TRACER_VARIABLE) == "false"


def from_environment() -> Settings:
    return Settings.read(os.environ)


def sampled_call() -> str:
    """Return X-Ray's id of the current call in the format of `X-Amzn-Trace-Id`.

    Return "" if the call is not sampled.
    """
    header = os.environ.get(_XRAY, "")
    return header if SAMPLED in header else ""


def is_snapshot() -> bool:
    """Return True if Lambda takes a snapshot of this process, for other processes (SnapStart)."""
    return os.environ.get("AWS_LAMBDA_INITIALIZATION_TYPE") == "snap-start"
