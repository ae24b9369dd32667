"""The settings of the functions, read once from the environment into an immutable value.

Only this module reads the environment of a function, including the variables that Lambda sets for
each call. `SETTINGS` is the table of the variables. `infra/` sets these variables, and
docs/operations/OPERATIONS.md describes them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from tidings.core import limits
from tidings.core.tracing import SAMPLED
from tidings.http import settings as shared
from tidings.http.settings import NO_ORIGINS as NO_ORIGINS
from tidings.http.settings import MissingSetting as MissingSetting
from tidings.http.settings import Setting, Shared
from tidings.http.settings import WrongSetting as WrongSetting
from tidings.http.settings import origins as origins

if TYPE_CHECKING:
    from collections.abc import Mapping


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

SETTINGS = (
    Setting("TIDINGS_STAGE", None, "name of the stage: dev, staging, prod or local"),
    Setting("TIDINGS_LOG_TABLE", None, "table of the log's pages"),
    Setting("TIDINGS_STATE_TABLE", None, "table of the latest operation of each object"),
    Setting("TIDINGS_CONTROL_TABLE", None, "table of counters, floors, followers and claims"),
    Setting("TIDINGS_CONNECTIONS_TABLE", None, "table of WebSocket connections"),
    Setting("TIDINGS_OUTBOX_TABLE", "", "table to which other applications write operations"),
    Setting("TIDINGS_FUNCTION_PREFIX", None, "prefix of the names of functions"),
    Setting("TIDINGS_SOCKETS_URL", "", "https endpoint to post to WebSocket connections"),
    *shared.SHARED,
    Setting("TIDINGS_STREAM_SECONDS", "120", "duration of an event stream: 60 to 840"),
    Setting("TIDINGS_FOLLOWER", "", "follower of the function: state, push or archive"),
    Setting("TIDINGS_ARCHIVE", "", "the archive: s3://BUCKET/PREFIX or file:///FOLDER"),
    Setting(
        "TIDINGS_ARCHIVE_SECONDS",
        "900",
        "longest wait for the archive in seconds, if few pages wait",
    ),
    Setting(
        "TIDINGS_METRICS", "all", "metrics that are written: all, or alarms (only those of alarms)"
    ),
    Setting(
        "TIDINGS_LAG_PAGES",
        "1000",
        "pages of lag above which an alarm is raised, if the lag persists",
    ),
    Setting(
        "TIDINGS_ERASURE_SECONDS",
        str(limits.ERASE_SETTLE_S),
        "time in seconds between rewriting the log and rewriting the archive for an erasure",
    ),
    Setting("TIDINGS_CAPTURE", "", "mapping of a captured table's writes to operations"),
    Setting("TIDINGS_COORDINATOR", "", "table of leader elections: dynamodb://TABLE?region=REGION"),
)


COORDINATOR_RULE = "must be dynamodb://TABLE[?region=REGION][&endpoint=URL]"


class WrongCoordinator(Exception):
    """TIDINGS_COORDINATOR is invalid; the message is the rule for its value."""


@dataclass(frozen=True, slots=True)
class CoordinatorUrl:
    """The table of the leader election. An empty *region* or *endpoint* stands for the default."""

    table: str
    region: str = ""
    endpoint: str = ""


def parse_coordinator(text: str) -> CoordinatorUrl | None:
    """Return the table named by *text*; None if *text* is empty.

    Raises:
        WrongCoordinator: *text* does not name a table.
    """
    if not text:
        return None
    try:
        parts = urlsplit(text)
        options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    except ValueError:
        raise WrongCoordinator(COORDINATOR_RULE) from None
    unknown = options.keys() - {"region", "endpoint"}
    if parts.scheme != "dynamodb" or not parts.netloc or parts.path or parts.fragment or unknown:
        raise WrongCoordinator(COORDINATOR_RULE)
    table = unquote(parts.netloc)  # an ARN if the table is in another account
    return CoordinatorUrl(table, options.get("region", ""), options.get("endpoint", ""))


@dataclass(frozen=True, slots=True)
class Settings(Shared):
    """The parsed values of `SETTINGS`."""

    stage: str
    log_table: str
    state_table: str
    control_table: str
    connections_table: str
    outbox_table: str
    function_prefix: str
    sockets_url: str
    stream_ms: int
    follower: str
    archive: str
    archive_wait_ms: int
    erasure_settle_ms: int
    all_metrics: bool
    lag_pages_max: int
    capture: str
    coordinator: CoordinatorUrl | None


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
    return parse(os.environ)


def sampled_call() -> str:
    """Return X-Ray's id of the current call in the format of `X-Amzn-Trace-Id`.

    Return "" if the call is not sampled.
    """
    header = os.environ.get(_XRAY, "")
    return header if SAMPLED in header else ""


def is_snapshot() -> bool:
    """Return True if Lambda takes a snapshot of this process, for other processes (SnapStart)."""
    return os.environ.get("AWS_LAMBDA_INITIALIZATION_TYPE") == "snap-start"


def parse(environment: Mapping[str, str]) -> Settings:
    """Return the settings parsed from *environment*.

    Raises:
        MissingSetting: a variable without a default is absent or empty.
        WrongSetting: a value breaks its rule.
    """
    values = shared.values_of(environment, SETTINGS)
    coordinator = _coordinator(values)
    of_every_host = shared.parse(values, coordinated=coordinator is not None)
    bounds = limits.STREAM_S_MIN, limits.STREAM_S_MAX
    return Settings(
        **{name: getattr(of_every_host, name) for name in Shared.__slots__},
        stage=values["TIDINGS_STAGE"],
        log_table=values["TIDINGS_LOG_TABLE"],
        state_table=values["TIDINGS_STATE_TABLE"],
        control_table=values["TIDINGS_CONTROL_TABLE"],
        connections_table=values["TIDINGS_CONNECTIONS_TABLE"],
        outbox_table=values["TIDINGS_OUTBOX_TABLE"],
        function_prefix=values["TIDINGS_FUNCTION_PREFIX"],
        sockets_url=values["TIDINGS_SOCKETS_URL"],
        stream_ms=1000 * shared.parse_setting(values, "TIDINGS_STREAM_SECONDS", *bounds),
        follower=values["TIDINGS_FOLLOWER"],
        archive=_archive(values),
        archive_wait_ms=1000 * shared.parse_setting(values, "TIDINGS_ARCHIVE_SECONDS", 0, DAY_S),
        erasure_settle_ms=1000 * shared.parse_setting(values, "TIDINGS_ERASURE_SECONDS", 0, DAY_S),
        all_metrics=_all_metrics(values),
        lag_pages_max=shared.parse_setting(values, "TIDINGS_LAG_PAGES", 1),
        capture=values["TIDINGS_CAPTURE"],
        coordinator=coordinator,
    )


def _all_metrics(values: Mapping[str, str]) -> bool:
    which = values["TIDINGS_METRICS"]
    if which not in (ALL_METRICS, ALARM_METRICS):
        rule = f"must be {ALL_METRICS} or {ALARM_METRICS}"
        raise WrongSetting("TIDINGS_METRICS", which, rule)
    return which == ALL_METRICS


def _archive(values: Mapping[str, str]) -> str:
    text = values["TIDINGS_ARCHIVE"]
    if text:
        try:
            shared.parse_archive_url(text)
        except shared.WrongArchive:
            raise WrongSetting("TIDINGS_ARCHIVE", text, shared.ARCHIVE_RULE) from None
    return text


def _coordinator(values: Mapping[str, str]) -> CoordinatorUrl | None:
    text = values["TIDINGS_COORDINATOR"]
    try:
        return parse_coordinator(text)
    except WrongCoordinator as error:
        raise WrongSetting("TIDINGS_COORDINATOR", text, str(error)) from None
