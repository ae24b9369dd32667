"""
Bills: what three sizes of feed cost in a month, line by line, from what was measured.

Every line is a product: its factors are printed as they are multiplied. Nothing here measures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil, exp, prod
from typing import Any

from tidings.aws.config.settings import SETTINGS
from tidings.core import limits

from infra import prices, settings
from infra.prices import Price

MONTH_S = 730 * 3600  # hours of an average month, as AWS reckons
POLLS_PER_S = 4  # of a stream's shard by Lambda: more pages than that come together
ROUND_TRIP_MS = 5.0  # assumed for a request to DynamoDB: a millisecond or two to ten
FULL_CORE_MB = 1769  # Lambda gives a function of this size one core, a smaller one its share
PLATFORM_LOG_BYTES = 500  # assumed of Lambda's own lines, for each call
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
LEAVES = 10  # assumed of each reader a day: nets, laptops and deployments that cut it
STREAM_S = next(
    int(each.default or 0) for each in SETTINGS if each.variable == "TIDINGS_STREAM_SECONDS"
)
GB = 1e9
# A connection has an item of its own and one for the only key of its filter.
LOOKED_AT_MAX = limits.SWEEP_PORTION * limits.SWEEP_PORTIONS_MAX // 2
LOOKED_AT_BYTES = 400  # both items of a connection, see docs/adr/0039
LOOKED_AT_CPU_MS = 0.013  # of 2,000 connections: 10 ms for the JSON of the answer, 16 to decode it


CONSUMER_DAYS = 30  # for which a log may wait for named consumers, by default


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
    key: bool

    @property
    def pages(self) -> int:
        return ceil(self.operations / self.batch)

    @property
    def runs(self) -> int:
        """Of each follower: one a page, until pages come faster than the stream is polled."""
        return min(self.pages, POLLS_PER_S * MONTH_S)


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
        key=False,
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
        key=True,
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
        key=True,
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
            *self._standing(),
        ]
        found.append(self._logs(found))
        return [each for each in found if each.dollars > 0]

    @property
    def dollars(self) -> float:
        return sum(each.dollars for each in self.lines())

    def _used(self, path: str) -> Mapping[str, float]:
        found: Mapping[str, float] = self.measured["used"][path]
        return found

    def _bytes(self, what: str) -> float:
        return float(self.measured["bytes"][what])

    def _call(self, what: str, path: str, memory: str, count: float, of: str) -> Iterator[Line]:
        """What *count* calls of a function cost, beside what they are called for."""
        used, gb = self._used(path), MEMORY_GB[memory]
        yield line(f"{what}: calls", prices.INVOCATION, (count, of))
        billed = (count, of), (self.billed_s(path, memory), "s"), (gb, "GB")
        yield line(f"{what}: time", prices.GB_SECOND, *billed)
        yield line(f"{what}: writes", prices.WRITE_UNIT, (count, of), (used["writes"], "WRU"))
        yield line(f"{what}: reads", prices.READ_UNIT, (count, of), (used["reads"], "RRU"))
        logged = (used["logged"] + PLATFORM_LOG_BYTES) / GB
        yield line(f"{what}: log", prices.LOG_GB, (count, of), (logged, "GB"))

    def billed_s(self, path: str, memory: str) -> float:
        """CPU time at the function's share of a core, and the waits for DynamoDB."""
        used = self._used(path)
        share = min(1.0, MEMORY_GB[memory] * 1024 / FULL_CORE_MB)
        return (used["cpu_ms"] / share + used["requests"] * ROUND_TRIP_MS) / 1000

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
        minutes = min(self.size.pages, MONTH_S / 60)
        yield from self._call("archive", f"follow-archive, {quiet}", "follow", minutes, "runs")
        yield line("archive: parts", prices.S3_PUT, (minutes, "parts"))

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
        taken = (self.message_s(), "s"), (MEMORY_GB["follow"], "GB")
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
        share = min(1.0, MEMORY_GB["ingest"] * 1024 / FULL_CORE_MB)
        taken = (LOOKED_AT_CPU_MS / share / 1000, "s"), (MEMORY_GB["ingest"], "GB")
        yield line("sweep of connections: time", prices.GB_SECOND, *found, *taken)

    def message_s(self) -> float:
        """Of the push follower's time, what one message of a run takes more than none."""
        path, reach = next(
            (name, int(name.rsplit(" ", 1)[1]))
            for name in self.measured["used"]
            if name.startswith("push of a page")
        )
        alone = self._used("follow-push, a page of 1")["cpu_ms"]
        share = min(1.0, MEMORY_GB["follow"] * 1024 / FULL_CORE_MB)
        return max(0.0, self._used(path)["cpu_ms"] - alone) / reach / share / 1000

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
        each = "page of 1" if size.batch == 1 else "operation in a page of 100"
        days = max(size.retention_days, CONSUMER_DAYS) + 1  # DynamoDB deletes a day later
        log = size.operations / (MONTH_S / 86_400) * days * self._bytes(each) / GB
        state = size.objects * self._bytes("row") / GB
        for what, weight in (("log", log), ("state", state)):
            yield line(f"{what}: storage", prices.TABLE_GB, (weight, "GB"))
            yield line(f"{what}: recovery", prices.RECOVERY_GB, (weight, "GB"))
        packed = self._bytes("operation in a page of 100")
        yield line(
            "archive: a month's storage", prices.S3_GB, (size.operations * packed / GB, "GB")
        )

    def _standing(self) -> Iterator[Line]:
        """What a stage costs where nothing happens."""
        minutes = MONTH_S / 60
        yield from self._call("sweep", "sweep, idle", "ingest", minutes, "runs")
        yield from self._call("index", "index, idle", "ingest", minutes, "runs")
        alarms = self.measured["alarms"][self.size.stage]
        yield line("alarms", prices.ALARM, (alarms, "alarms"))
        yield line("dashboard", prices.DASHBOARD, (1, "dashboard"))
        yield line("metrics", prices.METRIC, (self.measured["metrics"], "metrics"))
        if self.size.key:
            yield line("key", prices.KEY, (1, "key"))

    def _logs(self, lines: Iterable[Line]) -> Line:
        """What was taken in stays for as long as the stage keeps its logs."""
        logged = sum(each.amount for each in lines if each.price is prices.LOG_GB)
        months = settings.chosen(self.size.stage)[0].log_days * 86_400 / MONTH_S
        return line("logs: kept", prices.LOG_KEPT_GB, (logged, "GB"), (months, "months"))

    def standing(self) -> float:
        """Of the whole, what is there when nobody posts and nobody listens."""
        return sum(each.dollars for each in self._standing())
