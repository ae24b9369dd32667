"""
The monthly bills of three sizes of feed, line by line, computed from measured usage.

Every line is a product of factors, which the page prints. `of_template` reads the resources of a
stage that are billed when nothing happens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil, exp, prod
from typing import Any

from tidings.aws.config.metrics import METRICS
from tidings.aws.config.settings import SETTINGS
from tidings.core import limits

from infra import prices, settings
from infra.prices import Price

MONTH_S = 730 * 3600  # hours of an average month, as AWS reckons
FINE_S = 60  # an alarm that looks more often is billed three times
FINE = 3
_RATE = re.compile(r"rate\((\d+) minutes?\)")

POLLS_PER_S = 4  # of a stream's shard by Lambda: more pages than that come together
ROUND_TRIP_MS = 5.0  # assumed for a request to DynamoDB: a millisecond or two to ten
FULL_CORE_MB = 1769  # Lambda gives a function of this size one core, a smaller one its share
PLATFORM_LOG_BYTES = 0  # of Lambda's own lines, for each call: only those that failed have any
KEEP_ALIVE_S = 540  # clients say `keepalive` behind so long a silence (PROTOCOL 8.7)
CONNECTION_S = 7200  # API Gateway cuts then; the client comes back
MEMORY_GB = {
    "ingest": 0.5,
    "follow": 1.0,
    "receive": 0.5,
    "connect": 0.25,
    "replay": 1.0,
    "stream": 0.5,  # a reader of Server-Sent Events holds a function of this size
}
STREAM = "stream that goes on"  # a path that was measured: one ended, its reader came back
INDEX = f"index, {limits.SUMMARY_PAGES} pages"  # likewise
LEAVES = 10  # assumed of each reader a day: nets, laptops and deployments that cut it
_DEFAULTS = {each.variable: each.default for each in SETTINGS}
STREAM_S = int(_DEFAULTS["TIDINGS_STREAM_SECONDS"] or 0)
ARCHIVE_S = int(_DEFAULTS["TIDINGS_ARCHIVE_SECONDS"] or 0)
GB = 1e9
# A connection has an item of its own and one for the only key of its filter.
LOOKED_AT_MAX = limits.SWEEP_PORTION * limits.SWEEP_PORTIONS_MAX // 2
LOOKED_AT_BYTES = 400  # both items of a connection, see docs/adr/0039
LOOKED_AT_CPU_MS = 0.013  # of 2,000 connections: 10 ms for the JSON of the answer, 16 to decode it


CONSUMER_DAYS = 30  # for which a log may wait for named consumers, by default

Resources = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Standing:
    """
    The billed resources of an idle stage.

    *alarms* counts their metrics, as AWS bills them. *snapshots_mb* is the memory of functions with
    a snapshot. *runs* are the monthly runs of functions that a schedule calls.
    """

    alarms: int
    composites: int
    dashboards: int
    keys: int
    snapshots_mb: int
    runs: Mapping[str, int]


def of_template(resources: Resources, prefix: str) -> Standing:
    """Read the resources; the names of the stage's functions begin with *prefix*."""
    return Standing(
        alarms=sum(map(_metrics, _of(resources, "AWS::CloudWatch::Alarm"))),
        composites=len(list(_of(resources, "AWS::CloudWatch::CompositeAlarm"))),
        dashboards=len(list(_of(resources, "AWS::CloudWatch::Dashboard"))),
        keys=len(list(_of(resources, "AWS::KMS::Key"))),
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


def _snapshot_mb(function: Mapping[str, Any]) -> int:
    """Return the memory of the one snapshot: an update deletes the previous version."""
    kept = function.get("SnapStart", {}).get("ApplyOn") == "PublishedVersions"
    return int(function["MemorySize"]) if kept else 0


def _runs(resources: Resources, prefix: str) -> Iterator[tuple[str, int]]:
    """
    Yield the monthly runs of each rate; a function called at a date has work then, and is not idle.

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
    """
    *operations* a month in requests of *batch*. Each page goes to *reach* of *sockets* connections
    held all the time; *streams* hold Server-Sent Events. *objects* live in the state.
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
        """What an operation is in the log, by what was weighed."""
        return "page of 1" if self.batch == 1 else "operation in a page of 100"

    @property
    def runs(self) -> int:
        """Of each follower: one a page, until pages come faster than the stream is polled."""
        return min(self.pages, POLLS_PER_S * MONTH_S)

    @property
    def archive_runs(self) -> float:
        """Pages wait until there are enough, or for a while; the sweep looks once a minute."""
        wanted = max(MONTH_S / ARCHIVE_S, self.pages / limits.ARCHIVE_PAGES)
        return min(self.pages, wanted, MONTH_S / 60)

    @property
    def index_runs(self) -> float:
        wanted = max(MONTH_S / 60 / limits.INDEX_EVERY, self.pages / limits.SUMMARY_PAGES)
        return min(self.pages, wanted, MONTH_S / 60)


SIZES = (
    Size(
        "A hobby",
        "One feed, 10,000 operations a day posted one by one, three WebSockets that hear all.",
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
        "5,000,000 operations a day in requests of 100, 200 WebSockets that hear all, five streams"
        " of Server-Sent Events, 10,000,000 objects.",
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
        "10 operations a second posted one by one, each wanted by 100 of 1,000,000 WebSockets.",
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
    """*factors* are numbers with what they count; their product is an amount of *price*."""

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
    """A function that a stream holds for a month."""
    gb = (MEMORY_GB["stream"], "GB")
    return line("held", prices.GB_SECOND, (MONTH_S, "s"), gb).dollars


def _number(value: float) -> str:
    """As it is multiplied: rounded by `_factor` before, so that a reader comes to the same."""
    return f"{value:,.10f}".rstrip("0").rstrip(".")


def _factor(value: float) -> float:
    """Four digits are what a measurement is good for; whole numbers stay."""
    return float(value) if float(value).is_integer() else float(f"{value:.4g}")


def line(what: str, price: Price, *factors: tuple[float, str]) -> Line:
    return Line(what, tuple((_factor(number), name) for number, name in factors), price)


@dataclass(frozen=True, slots=True)
class Bill:
    """The lines of *size*, of what was *measured*."""

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
            *self._standing(),
        ]
        found.append(self._logs(found))
        return [each for each in found if each.dollars > 0]

    @property
    def dollars(self) -> float:
        return total(self.lines())

    @property
    def _stage(self) -> settings.Stage:
        return settings.chosen(self.size.stage)[0]

    def _used(self, path: str) -> Mapping[str, float]:
        found: Mapping[str, float] = self.measured["used"][path]
        return found

    def _bytes(self, what: str) -> float:
        return float(self.measured["bytes"][what])

    def _call(self, what: str, path: str, memory: str, count: float, of: str) -> Iterator[Line]:
        """What *count* calls of a function cost, beside what they are called for."""
        used, gb = self._used(path), self._gb(memory)
        yield line(f"{what}: calls", prices.INVOCATION, (count, of))
        billed = (count, of), (self.billed_s(path, memory), "s"), (gb, "GB")
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
        """Of a core, that a function of this size has."""
        return min(1.0, self._gb(memory) * 1024 / FULL_CORE_MB)

    def billed_s(self, path: str, memory: str) -> float:
        """CPU time at the function's share of a core, and the waits for DynamoDB."""
        used = self._used(path)
        return (used["cpu_ms"] / self._share(memory) + used["requests"] * ROUND_TRIP_MS) / 1000

    def _producing(self) -> Iterator[Line]:
        count, of = self.size.pages, "requests"
        yield line("posts: HTTP API", prices.HTTP_REQUEST, (count, of))
        yield from self._call("posts", f"post of {self.size.batch}", "ingest", count, of)

    def _following(self) -> Iterator[Line]:
        runs = self.size.runs
        quiet = f"a page of {self.size.batch}"
        yield from self._call("state", f"follow-state, {quiet}", "follow", runs, "runs")
        together = self.size.operations - runs * self.size.batch
        if together > 0:  # those of pages that came with others: their rows alone are added
            yield line("state: more rows", prices.WRITE_UNIT, (together, "operations"), (1, "WRU"))
        yield from self._call("push", f"follow-push, {quiet}", "follow", runs, "runs")
        archived = self.size.archive_runs
        yield from self._call("archive", f"follow-archive, {quiet}", "follow", archived, "runs")
        yield line("archive: parts", prices.S3_PUT, (archived, "parts"))
        yield self._read_again("archive")
        yield from self._call("index", INDEX, "ingest", self.size.index_runs, "runs")
        yield self._read_again("index")

    def _read_again(self, what: str) -> Line:
        """Of the log, by runs that find many pages at once: far from its end, at half the price."""
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
        packed = "message of 100 in gzip"  # what our clients ask for; it gains nothing of one
        weight = (self._bytes(packed) if size.batch == 100 else self._bytes("message of 1")) / GB
        yield line("messages out: traffic", prices.OUT_GB, *sent, (weight, "GB"))
        taken = (self.message_s(), "s"), (self._gb("follow"), "GB")
        yield line("messages out: time", prices.GB_SECOND, *sent, *taken)
        yield line("keep-alives", prices.MESSAGE, held, (self._keep_alives(), "times"))
        if size.reach < size.sockets:  # who hears nothing is told the cursor now and then
            told = held, (MONTH_S / (limits.TELL_EVERY_MS / 1000), "times")
            yield line("moved cursors", prices.MESSAGE, *told)
        comes = size.sockets * (MONTH_S / CONNECTION_S)
        yield line("coming back: messages", prices.MESSAGE, (comes, "times"), (2, "messages"))
        yield from self._swept()
        for path, memory in (
            ("connect", "connect"),
            ("subscribe", "receive"),
            ("replay of nothing", "replay"),
            ("disconnect", "connect"),
        ):
            yield from self._call(f"coming back, {path}", path, memory, comes, "times")

    def _keep_alives(self) -> float:
        """Of a connection: messages come at random moments, each puts the next keep-alive off."""
        heard_per_s = self.size.pages * self.size.reach / self.size.sockets / MONTH_S
        silent = exp(-heard_per_s * KEEP_ALIVE_S)
        return MONTH_S * heard_per_s * silent / (1 - silent)

    def _swept(self) -> Iterator[Line]:
        """The sweep's look at connections, beside its run without any."""
        found = (min(self.size.sockets, LOOKED_AT_MAX), "connections"), (MONTH_S / 60, "runs")
        reads = LOOKED_AT_BYTES / 4096 / 2
        yield line("sweep of connections: reads", prices.READ_UNIT, *found, (reads, "RRU"))
        seconds = LOOKED_AT_CPU_MS / self._share("ingest") / 1000
        taken = (seconds, "s"), (self._gb("ingest"), "GB")
        yield line("sweep of connections: time", prices.GB_SECOND, *found, *taken)

    def message_s(self) -> float:
        """Of the push follower's time, what one message of a run takes more than none."""
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
        left = streams * LEAVES * MONTH_S / 86_400
        abandoned = (left, "readers who left"), (STREAM_S, "s")
        yield line("streams abandoned", prices.GB_SECOND, *abandoned, gb)
        yield line("streams abandoned: reads", prices.READ_UNIT, *abandoned, (5, "RRU"))
        if streams:
            yield from self.coming_back(streams * MONTH_S / STREAM_S + left)

    def coming_back(self, times: float) -> Iterator[Line]:
        """Of readers of streams, each time one has ended."""
        yield from self._call("streams: coming back", STREAM, "stream", times, "times")

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
        """Of a stage in use: a metric is billed for the hours in which it is written."""
        if self._stage.all_metrics:
            yield line("metrics, at most", prices.METRIC, (len(METRICS), "metrics"))

    def _standing(self) -> Iterator[Line]:
        """
        What a stage costs where nothing happens.

        Raises:
            KeyError: a schedule runs a function that was not measured with nothing to do.
        """
        found = Standing(**self.measured["standing"][self.size.stage])
        for name, runs in found.runs.items():
            idle = f"{name}, idle"
            yield from self._call(name, idle, "ingest", runs, "runs")
            yield line(f"{name}: metrics", prices.METRIC, (self._used(idle)["metrics"], "metrics"))
        yield line("alarms", prices.ALARM, (found.alarms, "alarms"))
        yield line("composite alarms", prices.COMPOSITE, (found.composites, "alarms"))
        yield line("dashboards", prices.DASHBOARD, (found.dashboards, "dashboards"))
        yield line("keys", prices.KEY, (found.keys, "keys"))
        kept = (found.snapshots_mb / 1024, "GB"), (MONTH_S, "s")
        yield line("snapshots", prices.SNAPSHOT_GB_SECOND, *kept)

    def _logs(self, lines: Iterable[Line]) -> Line:
        """What was taken in stays for as long as the stage keeps its logs."""
        logged = sum(each.amount for each in lines if each.price is prices.LOG_GB)
        months = self._stage.log_days * 86_400 / MONTH_S
        return line("logs: kept", prices.LOG_KEPT_GB, (logged, "GB"), (months, "months"))

    def standing(self) -> list[Line]:
        """Of the whole, what is there when nobody posts and nobody listens."""
        found = list(self._standing())
        return [each for each in (*found, self._logs(found)) if each.dollars > 0]


def total(lines: Iterable[Line]) -> float:
    return sum(each.dollars for each in lines)


def idle(stage: str, measured: Mapping[str, Any]) -> list[Line]:
    """What *stage* costs a month while nobody posts and nobody listens."""
    nothing = Size(stage, "", 0, 1, 0, 0, 0, 0, retention_days=1, stage=stage)
    return Bill(nothing, measured).standing()
