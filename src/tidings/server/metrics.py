"""`/metrics`: counters and gauges in the text format of Prometheus."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from tidings.core.errors import BrokenRelay
from tidings.core.metrics import METRICS
from tidings.server.host import Host, now_ms

_WORD = re.compile(r"(?<!^)(?=[A-Z])")
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a metric, with the labels that distinguish it from others of the same name."""

    value: int
    labels: Mapping[str, str]

    def line(self, name: str) -> str:
        pairs = (f'{label}="{text.translate(_ESCAPES)}"' for label, text in self.labels.items())
        labels = ",".join(pairs)
        return f"{name}{{{labels}}} {self.value}" if labels else f"{name} {self.value}"


@dataclass(frozen=True, slots=True)
class Family:
    """All samples of one name."""

    name: str
    kind: Literal["counter", "gauge"]
    meaning: str
    samples: Iterable[Sample]

    def lines(self) -> Iterator[str]:
        """Yield the lines of the family; none if it has no samples."""
        lines = [sample.line(self.name) for sample in self.samples]
        if lines:
            yield f"# HELP {self.name} {self.meaning[0].upper()}{self.meaning[1:]}."
            yield f"# TYPE {self.name} {self.kind}"
            yield from lines


def rendered(host: Host) -> str:
    """
    Return all metrics of *host* in the text format 0.0.4.

    Counters have the names of a stage's metrics, in snake case. Values that a stage measures once a
    minute are gauges, labelled with the feed and the name of the follower or consumer.
    """
    families = [*_counters(host), _connections(host)]
    families += [*_log(host), *_followers(host), *_consumers(host), *_relays(host)]
    return "".join(f"{line}\n" for family in families for line in family.lines())


def _counters(host: Host) -> Iterator[Family]:
    for metric in sorted(METRICS, key=lambda each: each.name):
        if metric.name in host.metrics and not metric.measured:
            name = f"tidings_{_WORD.sub('_', metric.name).lower()}_total"
            yield Family(name, "counter", metric.meaning, [Sample(host.metrics[metric.name], {})])


def _connections(host: Host) -> Family:
    samples = [Sample(host.sockets.count, {})]
    return Family("tidings_websocket_connections", "gauge", "open WebSockets", samples)


def _log(host: Host) -> Iterator[Family]:
    feeds = _feeds(host)
    head = [Sample(host.stores.log.head(feed), {"feed": feed}) for feed in feeds]
    floor = [Sample(host.stores.log.floor(feed), {"feed": feed}) for feed in feeds]
    yield Family("tidings_log_head", "gauge", "last page of the log", head)
    yield Family("tidings_log_floor", "gauge", "first page that is still in the log", floor)


def _followers(host: Host) -> Iterator[Family]:
    checkpoints, lags = [], []
    for feed in _feeds(host):
        head = host.stores.log.head(feed)
        for name, page in sorted(host.stores.followers.checkpoints(feed).items()):
            labels = {"feed": feed, "follower": name}
            checkpoints.append(Sample(page, labels))
            lags.append(Sample(max(0, head - page), labels))
    yield Family(
        "tidings_follower_checkpoint", "gauge", "last page that a follower has handled", checkpoints
    )
    yield Family("tidings_follower_lag", "gauge", "pages that a follower has not handled yet", lags)


def _consumers(host: Host) -> Iterator[Family]:
    lags, ages, fell_off = [], [], []
    for feed in _feeds(host):
        for consumer, lag in host.consumers.all(feed):
            labels = {"feed": feed, "consumer": consumer.name}
            lags.append(Sample(lag.pages, labels))
            ages.append(Sample(lag.ms // 1000, labels))
            fell_off.append(Sample(int(lag.fell_off), labels))
    yield Family(
        "tidings_consumer_lag", "gauge", "pages that a named consumer has not handled yet", lags
    )
    yield Family(
        "tidings_consumer_age_seconds",
        "gauge",
        "age of the oldest page that a named consumer has not handled",
        ages,
    )
    yield Family(
        "tidings_consumer_fell_off",
        "gauge",
        "1 if the log does not reach back to a named consumer any more",
        fell_off,
    )


def _relays(host: Host) -> Iterator[Family]:
    lags, ages, stopped = [], [], []
    for feed in sorted(host.settings.sources):
        try:
            relay = host.stores.relays.relay(feed)
        except BrokenRelay:  # reported by the status of the relay; the others are still shown
            stopped.append(Sample(1, {"feed": feed}))
            continue
        stopped.append(Sample(int(relay.stands), {"feed": feed}))
        lags.append(Sample(max(0, relay.upstream_head - relay.checkpoint), {"feed": feed}))
        if relay.upstream_read_ms:
            age_s = max(0, now_ms() - relay.upstream_read_ms) // 1000
            ages.append(Sample(age_s, {"feed": feed}))
    yield Family(
        "tidings_relay_lag", "gauge", "pages of the upstream that a chained feed has not got", lags
    )
    yield Family(
        "tidings_relay_upstream_age_seconds",
        "gauge",
        "time since a chained feed last read its upstream",
        ages,
    )
    yield Family(
        "tidings_relays_standing",
        "gauge",
        "1 if a chained feed is stopped until an operator acts",
        stopped,
    )


def _feeds(host: Host) -> list[str]:
    return sorted(host.settings.feeds)
