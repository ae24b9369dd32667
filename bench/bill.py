"""The monthly bills of three sizes of feed, line by line, computed from measured usage.

Every line is a product of factors, which the page prints. `of_template` reads the resources of a
stage that are billed when nothing happens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil, exp, prod
from typing import Any

from infra import prices, settings
from infra.prices import Price
from tidings.aws.config.settings import SETTINGS
from tidings.core import limits
from tidings.core.metrics import METRICS

MONTH_S = 730 * 3600  # hours of an average month, as in AWS's prices
FINE_S = 60  # an alarm with a shorter period is billed three times
FINE = 3
_RATE = re.compile(r"rate\((\d+) minutes?\)")

POLLS_PER_S = 4  # polls of a stream's shard by Lambda; at higher page rates, pages share a run
ROUND_TRIP_MS = 5.0  # assumed for a request to DynamoDB: a millisecond or two to ten
FULL_CORE_MB = 1769  # a function of this size has one core, a smaller one its share
PLATFORM_LOG_BYTES = 0  # of Lambda's own lines per call: only failed calls have any
KEEP_ALIVE_S = 540  # clients send `keepalive` after this silence (PROTOCOL 8.7)
CONNECTION_S = 7200  # API Gateway then disconnects, and the client reconnects
MEMORY_GB = {
    "ingest": 0.5,
    "follow": 1.0,
    "receive": 0.5,
    "connect": 0.25,
    "replay": 1.0,
    "stream": 0.5,  # a reader of Server-Sent Events holds a function of this size
}
STREAM = "stream that goes on"  # a measured path: a stream ended, its reader reconnected
INDEX = f"index, {limits.SUMMARY_PAGES} pages"  # a measured path
LEAVES = 10  # assumed disconnects per reader and day: networks, laptops and deployments
_DEFAULTS = {each.variable: each.default for each in SETTINGS}
STREAM_S = int(_DEFAULTS["TIDINGS_STREAM_SECONDS"] or 0)
ARCHIVE_S = int(_DEFAULTS["TIDINGS_ARCHIVE_SECONDS"] or 0)
GB = 1e9
# A connection has its own item and one for the only key of its filter.
CHECKED_MAX = limits.SWEEP_PAGE * limits.SWEEP_PAGES_MAX // 2
CHECKED_BYTES = 400  # both items of a connection, see docs/adr/0039
WRITES_AT_ONCE = 24  # rows that a follower writes concurrently (tidings.aws.dynamodb.puts)
ROTATIONS = 2  # of a key, once a year: AWS bills the first two, so a key costs this more after them
ROUTE_METRICS = 6  # of a route: requests, both errors, both latencies, data
# A line of an access log: its fields (infra.parts.logs) with values of usual length, and 26 bytes
# that CloudWatch adds to each event.
ACCESS_LOG_BYTES = {"http": 395, "sockets": 300}
# The lines of a request with a key (tidings.aws.request_log), without the address, and 26 bytes for
# each: an event stream has a line at its start and one at its end.
KEY_LOG_BYTES = {"http": 188, "sockets": 222, "streams": 258 + 229}
CHECKED_CPU_MS = 0.013  # of 2,000 connections: 10 ms for the JSON of the answer, 16 to decode it


CONSUMER_DAYS = 30  # for which a log may wait for named consumers, by default

Resources = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class FixedCosts:
    """The billed resources of an idle stage.

    *alarms* counts their metrics, as AWS bills them. *rotated* counts keys with a yearly rotation,
    *routes* those with metrics of their own. *snapshots_mb* is the memory of functions with
    a snapshot. *runs* are the monthly runs of functions that a schedule calls.
    """

    alarms: int
    composites: int
    dashboards: int
    keys: int
    rotated: int
    routes: int
    snapshots_mb: int
    runs: Mapping[str, int]


def of_template(resources: Resources, prefix: str) -> FixedCosts:
    """Read the resources; the names of the stage's functions begin with *prefix*."""
    return FixedCosts(
        alarms=sum(map(_metrics, _of(resources, "AWS::CloudWatch::Alarm"))),
        composites=len(list(_of(resources, "AWS::CloudWatch::CompositeAlarm"))),
        dashboards=len(list(_of(resources, "AWS::CloudWatch::Dashboard"))),
        keys=len(list(_of(resources, "AWS::KMS::Key"))),
        rotated=sum(bool(k.get("EnableKeyRotation")) for k in _of(resources, "AWS::KMS::Key")),
        routes=len(list(_of(resources, "AWS::ApiGatewayV2::Route"))) if _detailed(resources) else 0,
        snapshots_mb=sum(map(_snapshot_mb, _of(resources, "AWS::Lambda::Function"))),
        runs=dict(_runs(resources, prefix)),
    )


def _of(resources: Resources, kind: str) -> Iterator[Mapping[str, Any]]:
    return (each.get("Properties", {}) for each in resources.values() if each["Type"] == kind)


def _metrics(alarm: Mapping[str, Any]) -> int:
    """Return the billed alarms: each metric of an expression counts as one."""
    if "Metrics" not in alarm:
        return FINE if alarm["Period"] < FINE_S else 1
    stats = [each["MetricStat"] for each in alarm["Metrics"] if "MetricStat" in each]
    return sum(FINE if each["Period"] < FINE_S else 1 for each in stats)


def _detailed(resources: Resources) -> bool:
    """Return True if API Gateway measures each route."""
    stages = _of(resources, "AWS::ApiGatewayV2::Stage")
    return any(s.get("DefaultRouteSettings", {}).get("DetailedMetricsEnabled") for s in stages)


def _snapshot_mb(function: Mapping[str, Any]) -> int:
    """Return the memory of the one snapshot: an update deletes the previous version."""
    kept = function.get("SnapStart", {}).get("ApplyOn") == "PublishedVersions"
    return int(function["MemorySize"]) if kept else 0


def _runs(resources: Resources, prefix: str) -> Iterator[tuple[str, int]]:
    """Yield the monthly runs of each rate; a function called at a date has work then, and is not
    idle.

    Raises:
        KeyError: a schedule calls something that is not a function of the stage.
    """
    for schedule in _of(resources, "AWS::Scheduler::Schedule"):
        if rate := _RATE.fullmatch(schedule["ScheduleExpression"]):
            alias = resources[schedule["Target"]["Arn"]["Ref"]]["Properties"]
            called = resources[alias["FunctionName"]["Ref"]]["Properties"]
            name = called["FunctionName"].removeprefix(prefix)
            yield name, MONTH_S // (int(rate[1]) * 60)


@dataclass(frozen=True, slots=True)
class Size:
    """*operations* a month in requests of *batch*. Each page goes to *reach* of *sockets*
    connections held all the time; *streams* hold Server-Sent Events. *objects* live in the state.
    """

    name: str
    says: str
    operations: int
    batch: int
    sockets: int
    reach: int
    streams: int
    objects: int
    retention_days: int
    stage: str

    @property
    def pages(self) -> int:
        return ceil(self.operations / self.batch)

    @property
    def each(self) -> str:
        """Return the measured path with the size of an operation in the log."""
        return "page of 1" if self.batch == 1 else "operation in a page of 100"

    @property
    def runs(self) -> int:
        """Return the runs of each follower: one per page, until pages arrive faster than the stream
        is polled.
        """
        return min(self.pages, POLLS_PER_S * MONTH_S)

    @property
    def archive_runs(self) -> float:
        """Return the runs: at enough pages or after a while; the sweep checks once a minute."""
        wanted = max(MONTH_S / ARCHIVE_S, self.pages / limits.ARCHIVE_PAGES)
        return min(self.pages, wanted, MONTH_S / 60)

    @property
    def index_runs(self) -> float:
        wanted = max(MONTH_S / 60 / limits.INDEX_EVERY, self.pages / limits.SUMMARY_PAGES)
        return min(self.pages, wanted, MONTH_S / 60)


SIZES = (
    Size(
        "A hobby",
        "One feed, 10,000 operations a day posted one by one, three WebSockets without a filter.",
        operations=300_000,
        batch=1,
        sockets=3,
        reach=3,
        streams=0,
        objects=50_000,
        retention_days=1,
        stage="dev",
    ),
    Size(
        "A company",
        "5,000,000 operations a day in requests of 100, 200 WebSockets without a filter,"
        " five streams of Server-Sent Events, 10,000,000 objects.",
        operations=150_000_000,
        batch=100,
        sockets=200,
        reach=200,
        streams=5,
        objects=10_000_000,
        retention_days=7,
        stage="prod",
    ),
    Size(
        "A million connections",
        "10 operations a second posted one by one, each sent to 100 of 1,000,000 WebSockets.",
        operations=10 * MONTH_S,
        batch=1,
        sockets=1_000_000,
        reach=100,
        streams=0,
        objects=10_000_000,
        retention_days=7,
        stage="prod",
    ),
)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a bill. *factors* are numbers with units; their product is an amount of *price*."""

    what: str
    factors: tuple[tuple[float, str], ...]
    price: Price

    @property
    def amount(self) -> float:
        return prod(number for number, _ in self.factors)

    @property
    def dollars(self) -> float:
        return self.amount * self.price.dollars / self.price.per

    @property
    def formula(self) -> str:
        shown = " x ".join(f"{_number(number)} {what}" for number, what in self.factors)
        return f"{shown} x {self.price}"


def held_dollars() -> float:
    """Return the price of a function that a stream occupies for a month."""
    gb = (MEMORY_GB["stream"], "GB")
    return line("held", prices.GB_SECOND, (MONTH_S, "s"), gb).dollars


def _number(value: float) -> str:
    """Return the number as it is multiplied, rounded by `_factor`, so that readers get the same
    sum."""
    return f"{value:,.10f}".rstrip("0").rstrip(".")


def _factor(value: float) -> float:
    """Round to four digits, the precision of a measurement; keep whole numbers."""
    return float(value) if float(value).is_integer() else float(f"{value:.4g}")


def line(what: str, price: Price, *factors: tuple[float, str]) -> Line:
    return Line(what, tuple((_factor(number), name) for number, name in factors), price)


@dataclass(frozen=True, slots=True)
class Bill:
    """The bill of *size*, from the *measured* usage."""

    size: Size
    measured: Mapping[str, Any]

    def lines(self) -> list[Line]:
        found = [
            *self._producing(),
            *self._following(),
            *self._connected(),
            *self._streaming(),
            *self._kept(),
            *self._counted(),
            *self._idle_costs(),
        ]
        found.append(self._logs(found))
        return [each for each in found if each.dollars > 0]

    @property
    def dollars(self) -> float:
        return total(self.lines())

    @property
    def _stage(self) -> settings.Stage:
        return settings.choose_stages(self.size.stage)[0]

    def _used(self, path: str) -> Mapping[str, float]:
        found: Mapping[str, float] = self.measured["used"][path]
        return found

    def _bytes(self, what: str) -> float:
        return float(self.measured["bytes"][what])

    def _call(
        self, what: str, path: str, memory: str, count: float, of: str, *, together: int = 0
    ) -> Iterator[Line]:
        """Yield the costs of *count* calls of a function, without the costs of their results.

        *together*: requests of a call that are concurrent.
        """
        used, gb = self._used(path), self._gb(memory)
        yield line(f"{what}: calls", prices.INVOCATION, (count, of))
        billed = (count, of), (self.billed_s(path, memory, together), "s"), (gb, "GB")
        yield line(f"{what}: time", prices.GB_SECOND, *billed)
        yield line(f"{what}: writes", prices.WRITE_UNIT, (count, of), (used["writes"], "WRU"))
        yield line(f"{what}: reads", prices.READ_UNIT, (count, of), (used["reads"], "RRU"))
        written = used["metric_bytes"] if self._stage.all_metrics else 0
        logged = (used["logged"] + written + PLATFORM_LOG_BYTES) / GB
        yield line(f"{what}: log", prices.LOG_GB, (count, of), (logged, "GB"))

    def _gb(self, memory: str) -> float:
        halved = memory == "follow" and self._stage.small_followers
        return MEMORY_GB[memory] / (2 if halved else 1)

    def _share(self, memory: str) -> float:
        """Return the share of a core that a function of this size has."""
        return min(1.0, self._gb(memory) * 1024 / FULL_CORE_MB)

    def billed_s(self, path: str, memory: str, together: int = 0) -> float:
        """Return the billed seconds: CPU time at the function's share of a core, and DynamoDB
        waits.

        *together* of the requests run concurrently, `WRITES_AT_ONCE` at a time.
        """
        used = self._used(path)
        waits = used["requests"] - together + ceil(together / WRITES_AT_ONCE)
        return (used["cpu_ms"] / self._share(memory) + waits * ROUND_TRIP_MS) / 1000

    def _accessed(self, what: str, api: str, *factors: tuple[float, str]) -> Line:
        """Return the costs of the access log of an API: a line for each request or message in."""
        weight = (ACCESS_LOG_BYTES[api] / GB, "GB")
        return line(f"{what}: access log", prices.LOG_GB, *factors, weight)

    def _key_logged(self, what: str, kind: str, *factors: tuple[float, str]) -> Line:
        """Return the costs of the lines that name the key of each request."""
        weight = (KEY_LOG_BYTES[kind] / GB, "GB")
        return line(f"{what}: log of keys", prices.LOG_GB, *factors, weight)

    def _producing(self) -> Iterator[Line]:
        count, of = self.size.pages, "requests"
        yield line("posts: HTTP API", prices.HTTP_REQUEST, (count, of))
        yield self._accessed("posts", "http", (count, of))
        yield self._key_logged("posts", "http", (count, of))
        yield from self._call("posts", f"post of {self.size.batch}", "ingest", count, of)

    def _following(self) -> Iterator[Line]:
        runs = self.size.runs
        quiet = f"a page of {self.size.batch}"
        rows = self.size.batch if self.size.batch > 1 else 0
        path = f"follow-state, {quiet}"
        yield from self._call("state", path, "follow", runs, "runs", together=rows)
        together = self.size.operations - runs * self.size.batch
        if together > 0:  # pages that share a run: only their rows are added
            yield line("state: more rows", prices.WRITE_UNIT, (together, "operations"), (1, "WRU"))
        yield from self._call("push", f"follow-push, {quiet}", "follow", runs, "runs")
        archived = self.size.archive_runs
        yield from self._call("archive", f"follow-archive, {quiet}", "follow", archived, "runs")
        yield line("archive: parts", prices.S3_PUT, (archived, "parts"))
        yield self._read_again("archive")
        yield from self._call("index", INDEX, "ingest", self.size.index_runs, "runs")
        yield self._read_again("index")

    def _read_again(self, what: str) -> Line:
        """Return the reads of the log by runs that find many pages at once, eventually consistent:
        half price.
        """
        reads = self.size.batch * self._bytes(self.size.each) / 4096 / 2
        pages = (self.size.pages, "pages"), (reads, "RRU")
        return line(f"{what}: pages", prices.READ_UNIT, *pages)

    def _connected(self) -> Iterator[Line]:
        size = self.size
        if not size.sockets:
            return
        held = (size.sockets, "connections")
        yield line("held", prices.CONNECTION_MINUTE, held, (MONTH_S / 60, "minutes"))
        sent = (size.pages, "pages"), (size.reach, "connections")
        chunks = ceil(size.batch * self._bytes("message of 1") / 32_768)
        yield line("messages out", prices.MESSAGE, *sent, (chunks, "of 32 KB"))
        packed = "message of 100 in gzip"  # as our clients request; no gain for one
        weight = (self._bytes(packed) if size.batch == 100 else self._bytes("message of 1")) / GB
        yield line("messages out: traffic", prices.OUT_GB, *sent, (weight, "GB"))
        taken = (self.message_s(), "s"), (self._gb("follow"), "GB")
        yield line("messages out: time", prices.GB_SECOND, *sent, *taken)
        alive = held, (self._keep_alives(), "times")
        yield line("keep-alives", prices.MESSAGE, *alive)
        yield self._accessed("keep-alives", "sockets", *alive)
        if size.reach < size.sockets:  # clients without events receive the cursor regularly
            told = held, (MONTH_S / (limits.IDLE_CURSOR_MS / 1000), "times")
            yield line("moved cursors", prices.MESSAGE, *told)
        comes = size.sockets * (MONTH_S / CONNECTION_S)
        yield line("coming back: messages", prices.MESSAGE, (comes, "times"), (2, "messages"))
        routed = (comes, "times"), (3, "routes")  # connect, subscribe, disconnect
        yield self._accessed("coming back", "sockets", *routed)
        yield self._key_logged("coming back", "sockets", (comes, "times"))
        yield from self._swept()
        for path, memory in (
            ("connect", "connect"),
            ("subscribe", "receive"),
            ("replay of nothing", "replay"),
            ("disconnect", "connect"),
        ):
            yield from self._call(f"coming back, {path}", path, memory, comes, "times")

    def _keep_alives(self) -> float:
        """Return the keep-alives of a connection. Messages arrive at random, and each delays the
        next one.
        """
        heard_per_s = self.size.pages * self.size.reach / self.size.sockets / MONTH_S
        silent = exp(-heard_per_s * KEEP_ALIVE_S)
        return MONTH_S * heard_per_s * silent / (1 - silent)

    def _swept(self) -> Iterator[Line]:
        """Yield the costs of the sweep's check of connections, on top of its run without any."""
        found = (min(self.size.sockets, CHECKED_MAX), "connections"), (MONTH_S / 60, "runs")
        reads = CHECKED_BYTES / 4096 / 2
        yield line("sweep of connections: reads", prices.READ_UNIT, *found, (reads, "RRU"))
        seconds = CHECKED_CPU_MS / self._share("ingest") / 1000
        taken = (seconds, "s"), (self._gb("ingest"), "GB")
        yield line("sweep of connections: time", prices.GB_SECOND, *found, *taken)

    def message_s(self) -> float:
        """Return the seconds of the push follower per message, above a run without messages."""
        path, reach = next(
            (name, int(name.rsplit(" ", 1)[1]))
            for name in self.measured["used"]
            if name.startswith("push of a page")
        )
        alone = self._used("follow-push, a page of 1")["cpu_ms"]
        more = max(0.0, self._used(path)["cpu_ms"] - alone)
        return more / reach / self._share("follow") / 1000

    def _streaming(self) -> Iterator[Line]:
        streams, gb = self.size.streams, (MEMORY_GB["stream"], "GB")
        held = (streams, "streams"), (MONTH_S, "s")
        yield line("streams held", prices.GB_SECOND, *held, gb)
        yield line("streams: reads", prices.READ_UNIT, *held, (5, "RRU"))
        sent = (self.size.operations, "events"), (streams, "streams")
        weight = (self._bytes("message of 1") / GB, "GB")
        yield line("streams: traffic", prices.OUT_GB, *sent, weight)
        left = streams * LEAVES * MONTH_S / 86_400
        abandoned = (left, "readers who left"), (STREAM_S, "s")
        yield line("streams abandoned", prices.GB_SECOND, *abandoned, gb)
        yield line("streams abandoned: reads", prices.READ_UNIT, *abandoned, (5, "RRU"))
        if streams:
            yield from self.coming_back(streams * MONTH_S / STREAM_S + left)

    def coming_back(self, times: float) -> Iterator[Line]:
        """Yield the costs of readers of streams that reconnect, *times* times."""
        yield from self._call("streams: coming back", STREAM, "stream", times, "times")
        yield self._key_logged("streams", "streams", (times, "times"))

    def _kept(self) -> Iterator[Line]:
        size = self.size
        days = max(size.retention_days, CONSUMER_DAYS) + 1  # DynamoDB deletes a day later
        log = size.operations / (MONTH_S / 86_400) * days * self._bytes(size.each) / GB
        state = size.objects * self._bytes("row") / GB
        for what, weight in (("log", log), ("state", state)):
            yield line(f"{what}: storage", prices.TABLE_GB, (weight, "GB"))
            yield line(f"{what}: recovery", prices.RECOVERY_GB, (weight, "GB"))
        packed = self._bytes("operation in a page of 100")
        yield line(
            "archive: a month's storage", prices.S3_GB, (size.operations * packed / GB, "GB")
        )

    def _counted(self) -> Iterator[Line]:
        """Yield the metrics of a stage in use: each is billed for the hours in which it is
        written."""
        if self._stage.all_metrics:
            yield line("metrics, at most", prices.METRIC, (len(METRICS), "metrics"))
        routes = int(self.measured["standing"][self.size.stage]["routes"])
        each = (routes, "routes"), (ROUTE_METRICS, "metrics")
        yield line("metrics of routes, at most", prices.METRIC, *each)

    def _idle_costs(self) -> Iterator[Line]:
        """Yield the costs of an idle stage.

        Raises:
            KeyError: a schedule runs a function for which no idle run was measured.
        """
        found = FixedCosts(**self.measured["standing"][self.size.stage])
        for name, runs in found.runs.items():
            idle = f"{name}, idle"
            yield from self._call(name, idle, "ingest", runs, "runs")
            yield line(f"{name}: schedule", prices.SCHEDULE, (runs, "runs"))
            yield line(f"{name}: metrics", prices.METRIC, (self._used(idle)["metrics"], "metrics"))
        yield line("alarms", prices.ALARM, (found.alarms, "alarms"))
        yield line("composite alarms", prices.COMPOSITE, (found.composites, "alarms"))
        yield line("dashboards", prices.DASHBOARD, (found.dashboards, "dashboards"))
        yield line("keys", prices.KEY, (found.keys, "keys"))
        yield line("keys: rotations", prices.KEY, (found.rotated, "keys"), (ROTATIONS, "rotations"))
        kept = (found.snapshots_mb / 1024, "GB"), (MONTH_S, "s")
        yield line("snapshots", prices.SNAPSHOT_GB_SECOND, *kept)

    def _logs(self, lines: Iterable[Line]) -> Line:
        """Return the costs of stored logs, for as long as the stage keeps them."""
        logged = sum(each.amount for each in lines if each.price is prices.LOG_GB)
        months = self._stage.log_days * 86_400 / MONTH_S
        return line("logs: kept", prices.LOG_KEPT_GB, (logged, "GB"), (months, "months"))

    def idle_lines(self) -> list[Line]:
        """Return the lines that remain without producers and consumers."""
        found = list(self._idle_costs())
        return [each for each in (*found, self._logs(found)) if each.dollars > 0]


def total(lines: Iterable[Line]) -> float:
    return sum(each.dollars for each in lines)


def idle(stage: str, measured: Mapping[str, Any]) -> list[Line]:
    """Return the monthly costs of *stage* without producers and consumers."""
    nothing = Size(stage, "", 0, 1, 0, 0, 0, 0, retention_days=1, stage=stage)
    return Bill(nothing, measured).idle_lines()
