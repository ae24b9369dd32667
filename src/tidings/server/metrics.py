"""`/metrics`: the values that a server reports to Prometheus, as text or as OpenMetrics.

Counters have the names of a stage's metrics, in snake case; `FAMILIES` has all others. Tidings
renders them itself: see ADR 79.
"""

from __future__ import annotations

import os
import platform
import re
import resource
import time
from collections import defaultdict
from contextlib import suppress
from itertools import accumulate
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from tidings.core.consumers.service import Lag
from tidings.core.errors import BrokenRelay
from tidings.core.metrics import METRICS
from tidings.core.model.feeds import public_name
from tidings.core.version import VERSION
from tidings.http.request import named_quality
from tidings.server.host import BEGAN_MS, Host, now_ms
from tidings.server.meters import BOUNDS_S, EVENT_STREAM, OTHER, REFUSED, WEBSOCKET, Histogram

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
_WORD = re.compile(r"(?<!^)(?=[A-Z])")
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Labels = dict[str, str]
_OTHERS = {"feed": ""}  # the label of the sums over feeds without labels of their own
# Values with labels, by the name of the family.
Samples = dict[str, list[tuple["float | Histogram", Labels]]]


class Family(NamedTuple):
    """A name with its samples. A counter has no suffix `_total` here.

    If the values have a unit, it is the end of *name*, as OpenMetrics requires. *labels* are the
    names of the labels.
    """

    name: str
    kind: str
    meaning: str
    labels: tuple[str, ...] = ()

    @property
    def unit(self) -> str:
        """Return the unit: a base unit of Prometheus, or "" for a count."""
        return next((each for each in ("seconds", "bytes") if self.name.endswith(f"_{each}")), "")

    @property
    def sample(self) -> str:
        """Return the name of the family's samples in both formats."""
        return f"{self.name}_total" if self.kind == COUNTER else self.name


_FEED, _CONSUMER, _FOLLOWER = ("feed",), ("feed", "consumer"), ("feed", "follower")
COUNTERS = tuple(
    Family(f"tidings_{_WORD.sub('_', each.name).lower()}", COUNTER, each.meaning)
    for each in sorted(METRICS, key=lambda each: each.name)
    if not (each.measured or each.stage_only)
)
# A stage measures the values of followers, consumers and relays once a minute.
FAMILIES = (
    Family(
        "tidings_http_requests",
        COUNTER,
        "answered HTTP requests, by the path of their route; `other` are unknown paths, `refused`"
        " are requests that are not HTTP or exceed a limit",
        ("route", "method", "status"),
    ),
    Family(
        "tidings_http_request_duration_seconds",
        HISTOGRAM,
        "time from the head of an HTTP request to the head of its answer, including waiting that"
        " the client requested",
        ("route", "method"),
    ),
    Family(
        "tidings_commit_duration_seconds",
        HISTOGRAM,
        "time until a transaction, with the posts in it, was on disk",
    ),
    Family(
        "tidings_push_duration_seconds",
        HISTOGRAM,
        "time from a commit until its messages were written to a client that waits at the end of"
        " the log, for each client",
        ("transport",),
    ),
    Family(
        "tidings_webhook_duration_seconds",
        HISTOGRAM,
        "duration of the calls of webhooks: accepted, refused by the endpoint, or failed without"
        " an answer",
        ("result",),
    ),
    Family("tidings_clients", GAUGE, "clients that receive events now", ("transport",)),
    Family("tidings_http_connections", GAUGE, "open connections, including those of clients"),
    Family(
        "tidings_received_bytes", COUNTER, "bytes received from all connections, after decryption"
    ),
    Family("tidings_sent_bytes", COUNTER, "bytes sent to all connections, before encryption"),
    Family("tidings_websocket_connections", GAUGE, "open WebSockets"),
    Family("tidings_log_head", GAUGE, "number of the last page of the log", _FEED),
    Family("tidings_log_floor", GAUGE, "number of the first page still in the log", _FEED),
    Family(
        "tidings_follower_checkpoint",
        GAUGE,
        "number of the last page that a follower has handled",
        _FOLLOWER,
    ),
    Family("tidings_follower_lag", GAUGE, "pages that a follower has not handled yet", _FOLLOWER),
    Family(
        "tidings_consumer_lag",
        GAUGE,
        "pages that a named consumer has not handled yet; a webhook is a consumer, too",
        _CONSUMER,
    ),
    Family(
        "tidings_consumer_age_seconds",
        GAUGE,
        "age of the oldest page that a named consumer has not handled",
        _CONSUMER,
    ),
    Family(
        "tidings_consumer_fell_off",
        GAUGE,
        "1 if the log has lost pages that a named consumer still needs",
        _CONSUMER,
    ),
    Family(
        "tidings_consumer_parked",
        GAUGE,
        "messages of a named consumer that were set aside for an operator",
        _CONSUMER,
    ),
    Family(
        "tidings_relay_lag",
        GAUGE,
        "pages of the upstream that a chained feed has not copied yet",
        _FEED,
    ),
    Family(
        "tidings_relay_upstream_age_seconds",
        GAUGE,
        "time since a chained feed last read its upstream",
        _FEED,
    ),
    Family(
        "tidings_relays_standing",
        GAUGE,
        "1 if a chained feed is stopped until an operator acts",
        _FEED,
    ),
    Family("tidings_database_size_bytes", GAUGE, "size of the file feed.db"),
    Family("tidings_database_wal_bytes", GAUGE, "size of the write-ahead log of feed.db"),
    Family("tidings_disk_free_bytes", GAUGE, "free space on the disk of feed.db"),
    Family("tidings_disk_size_bytes", GAUGE, "size of the disk of feed.db"),
    Family(
        "tidings_build_info",
        GAUGE,
        "1; the labels are the versions of Tidings and of Python",
        ("version", "python"),
    ),
    Family("process_cpu_seconds", COUNTER, "CPU time of the process, of user and system"),
    Family("process_resident_memory_bytes", GAUGE, "resident memory of the process"),
    Family("process_virtual_memory_bytes", GAUGE, "virtual memory of the process"),
    Family("process_open_fds", GAUGE, "open file descriptors of the process"),
    Family("process_max_fds", GAUGE, "maximum number of open file descriptors of the process"),
    Family("process_start_time_seconds", GAUGE, "start of the process since 1970"),
)


def form_for(accept: str) -> str:
    """Return the format for a scraper that sends *accept*: `OPEN_METRICS` if it names that."""
    wanted = named_quality(accept, OPEN_METRICS.partition(";")[0])
    return OPEN_METRICS if wanted > named_quality(accept, TEXT.partition(";")[0]) else TEXT


def render_metrics(host: Host, form: str = TEXT) -> str:
    """Return all metrics of *host* in *form*, which is `TEXT` or `OPEN_METRICS`.

    The labels of a gauge are the feed, and the name of the follower or consumer. At most
    `limits.FEEDS_NAMED` feeds have labels; the others are summed.
    """
    is_open = form == OPEN_METRICS
    lines: list[str] = []
    for family, samples in collect(host):
        name = family.name if is_open else family.sample
        lines.append(f"# HELP {name} {family.meaning[0].upper()}{family.meaning[1:]}.")
        lines.append(f"# TYPE {name} {family.kind}")
        if is_open and family.unit:
            lines.append(f"# UNIT {name} {family.unit}")
        for value, labels in samples:
            lines += _lines(family.sample, value, labels)
    return "".join(f"{line}\n" for line in [*lines, *(["# EOF"] if is_open else [])])


def collect(host: Host) -> Iterator[tuple[Family, Sequence[tuple[float | Histogram, Labels]]]]:
    """Yield each family of *host* that has samples. This reads the database, so use a thread."""
    samples: Samples = defaultdict(list)
    counters = host.metrics
    names = {_WORD.sub("_", each.name).lower(): each.name for each in METRICS}
    for family in COUNTERS:
        samples[family.name].append((counters[names[family.name.removeprefix("tidings_")]], {}))
    _add_meters(samples, host)
    named = host.recent_feeds()
    for feed in sorted(named):
        _add_feed(samples, host, feed)
    _add_others(samples, host, named)
    for feed in filter(host.directory.exists, sorted(host.settings.sources)):
        _add_relay(samples, host, feed)
    _add_files(samples, host.path)
    _add_process(samples)
    for family in (*COUNTERS, *FAMILIES):
        if samples[family.name]:
            yield family, samples[family.name]


def _add_meters(samples: Samples, host: Host) -> None:
    meters, sockets = host.meters, host.sockets.count
    durations: dict[tuple[str, str], Histogram] = {}
    for (route, method, status), duration in sorted(
        dict(meters.answers).items(), key=itemgetter(0)
    ):
        labels = {"route": route, "method": method, "status": str(status)}
        samples["tidings_http_requests"].append((duration.count, labels))
        before = durations.get((route, method), Histogram())
        durations[route, method] = before + duration
    for status, count in sorted(dict(meters.refusals).items()):
        labels = {"route": REFUSED, "method": OTHER, "status": str(status)}
        samples["tidings_http_requests"].append((count, labels))
    for (route, method), duration in durations.items():
        labels = {"route": route, "method": method}
        samples["tidings_http_request_duration_seconds"].append((duration, labels))
    samples["tidings_commit_duration_seconds"].append((meters.commits, {}))
    for transport, duration in meters.push.items():
        samples["tidings_push_duration_seconds"].append((duration, {"transport": transport}))
    for result, duration in meters.calls.items():
        samples["tidings_webhook_duration_seconds"].append((duration, {"result": result}))
    for transport, clients in ((EVENT_STREAM, meters.event_streams()), (WEBSOCKET, sockets)):
        samples["tidings_clients"].append((clients, {"transport": transport}))
    samples["tidings_websocket_connections"].append((sockets, {}))
    samples["tidings_http_connections"].append((len(meters.connections), {}))
    samples["tidings_received_bytes"].append((meters.received_bytes, {}))
    samples["tidings_sent_bytes"].append((meters.sent_bytes, {}))


def _add_files(samples: Samples, path: Path) -> None:
    for name, file in (("size", path), ("wal", path.with_name(f"{path.name}-wal"))):
        with suppress(OSError):  # the last connection removes the write-ahead log
            samples[f"tidings_database_{name}_bytes"].append((file.stat().st_size, {}))
    with suppress(OSError):
        disk = os.statvfs(path.parent)
        samples["tidings_disk_free_bytes"].append((disk.f_bavail * disk.f_frsize, {}))
        samples["tidings_disk_size_bytes"].append((disk.f_blocks * disk.f_frsize, {}))


def _add_process(samples: Samples) -> None:
    """Add the standard metrics of a process; some exist on Linux only."""
    labels = {"version": VERSION, "python": platform.python_version()}
    samples["tidings_build_info"].append((1, labels))
    samples["process_cpu_seconds"].append((time.process_time(), {}))
    samples["process_start_time_seconds"].append((BEGAN_MS / 1000, {}))
    files_max = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    samples["process_max_fds"].append((files_max, {}))
    with suppress(OSError):
        samples["process_open_fds"].append((len(os.listdir("/proc/self/fd")), {}))
        with open("/proc/self/statm") as file:
            virtual, resident = file.read().split()[:2]
        page = resource.getpagesize()
        samples["process_virtual_memory_bytes"].append((int(virtual) * page, {}))
        samples["process_resident_memory_bytes"].append((int(resident) * page, {}))


def _add_feed(samples: Samples, host: Host, feed: str) -> None:
    """Add the log of *feed*, its followers and its named consumers."""
    head, name = host.stores.log.head(feed), public_name(feed)
    samples["tidings_log_head"].append((head, {"feed": name}))
    samples["tidings_log_floor"].append((host.stores.log.floor(feed), {"feed": name}))
    for follower, page in sorted(host.stores.followers.checkpoints(feed).items()):
        labels = {"feed": name, "follower": follower}
        samples["tidings_follower_checkpoint"].append((page, labels))
        samples["tidings_follower_lag"].append((max(0, head - page), labels))
    for consumer, lag in host.consumers.all(feed):
        labels = {"feed": name, "consumer": consumer.name}
        _add_lag(samples, labels, lag)
        samples["tidings_consumer_parked"].append((consumer.parked, labels))


def _add_lag(samples: Samples, labels: Labels, lag: Lag) -> None:
    samples["tidings_consumer_lag"].append((lag.pages, labels))
    samples["tidings_consumer_age_seconds"].append((lag.ms // 1000, labels))
    samples["tidings_consumer_fell_off"].append((int(lag.fell_off), labels))


def _add_others(samples: Samples, host: Host, named: Collection[str]) -> None:
    """Add the sums over all feeds except *named*, by statements that do not grow with the feeds."""
    others = host.stores.due_feeds.others(named)
    if not others.feeds:
        return
    samples["tidings_log_head"].append((others.pages, _OTHERS))
    for follower, pages in others.lags:
        samples["tidings_follower_lag"].append((pages, {**_OTHERS, "follower": follower}))
    lags = [
        each for feed, some in host.late_consumers.items() if feed not in named for each in some
    ]
    if lags:
        total = sum(each.pages for each in lags), max(each.ms for each in lags)
        _add_lag(samples, {**_OTHERS, "consumer": ""}, Lag(*total))
        # The gauge counts consumers here.
        fell_off = sum(each.fell_off for each in lags)
        samples["tidings_consumer_fell_off"][-1] = fell_off, {**_OTHERS, "consumer": ""}


def _add_relay(samples: Samples, host: Host, feed: str) -> None:
    labels = {"feed": public_name(feed)}
    try:
        relay = host.stores.relays.relay(feed)
    except BrokenRelay:  # the status of the relay reports the error; the other feeds are shown
        samples["tidings_relays_standing"].append((1, labels))
        return
    samples["tidings_relays_standing"].append((int(relay.is_blocked), labels))
    lag = max(0, relay.upstream_head - relay.checkpoint)
    samples["tidings_relay_lag"].append((lag, labels))
    if relay.upstream_read_ms:
        age_s = max(0, now_ms() - relay.upstream_read_ms) // 1000
        samples["tidings_relay_upstream_age_seconds"].append((age_s, labels))


def _lines(name: str, value: float | Histogram, labels: Labels) -> list[str]:
    """Return the lines of one sample; those of a histogram are its buckets, its sum and count."""
    if not isinstance(value, Histogram):
        return [f"{name}{_pairs(labels)} {value}"]
    bounds = [*map(repr, BOUNDS_S), "+Inf"]
    sums = list(accumulate(value.counts))
    lines = [
        f"{name}_bucket{_pairs({**labels, 'le': bound})} {count}"
        for bound, count in zip(bounds, sums, strict=True)
    ]
    return [
        *lines,
        f"{name}_sum{_pairs(labels)} {value.sum_s}",
        f"{name}_count{_pairs(labels)} {sums[-1]}",
    ]


def _pairs(labels: Labels) -> str:
    pairs = ",".join(f'{label}="{text.translate(_ESCAPES)}"' for label, text in labels.items())
    return f"{{{pairs}}}" if pairs else ""
