"""`/metrics`: counters and gauges in the text format of Prometheus."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

from tidings.core.consumers.service import Lag
from tidings.core.errors import BrokenRelay
from tidings.core.metrics import METRICS
from tidings.core.model.feeds import public_name
from tidings.server.host import Host, now_ms

if TYPE_CHECKING:
    from collections.abc import Collection

_WORD = re.compile(r"(?<!^)(?=[A-Z])")
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


Labels = dict[str, str]
_OTHERS = {"feed": ""}  # the label of the sums over feeds without labels of their own
Samples = dict[str, list[tuple[int, Labels]]]  # values with labels, by the name of the metric

# The gauges. A stage measures the same values once a minute.
_GAUGES = {
    "tidings_websocket_connections": "open WebSockets",
    "tidings_log_head": "last page of the log",
    "tidings_log_floor": "first page that is still in the log",
    "tidings_follower_checkpoint": "last page that a follower has handled",
    "tidings_follower_lag": "pages that a follower has not handled yet",
    "tidings_consumer_lag": "pages that a named consumer has not handled yet",
    "tidings_consumer_age_seconds": "age of the oldest page that a named consumer has not handled",
    "tidings_consumer_fell_off": "1 if the log has lost pages that a named consumer still needs",
    "tidings_relay_lag": "pages of the upstream that a chained feed has not copied yet",
    "tidings_relay_upstream_age_seconds": "time since a chained feed last read its upstream",
    "tidings_relays_standing": "1 if a chained feed is stopped until an operator acts",
}


def render_metrics(host: Host) -> str:
    """
    Return all metrics of *host* in the text format 0.0.4.

    Counters have the names of a stage's metrics, in snake case. The labels of a gauge are the feed,
    and the name of the follower or consumer. At most `limits.FEEDS_NAMED` feeds have labels; the
    others are summed.
    """
    samples: Samples = defaultdict(
        list, {"tidings_websocket_connections": [(host.sockets.count, {})]}
    )
    named = host.recent_feeds()
    for feed in sorted(named):
        _add_feed(samples, host, feed)
    _add_others(samples, host, named)
    for feed in filter(host.directory.exists, sorted(host.settings.sources)):
        _add_relay(samples, host, feed)
    counters = host.metrics
    lines = []
    for metric in sorted(METRICS, key=lambda each: each.name):
        if metric.name in counters and not metric.measured:
            name = f"tidings_{_WORD.sub('_', metric.name).lower()}_total"
            lines += _family(name, "counter", metric.meaning, [(counters[metric.name], {})])
    for name, meaning in _GAUGES.items():
        if samples[name]:
            lines += _family(name, "gauge", meaning, samples[name])
    return "".join(f"{line}\n" for line in lines)


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
        _add_lag(samples, {"feed": name, "consumer": consumer.name}, lag)


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


def _family(name: str, kind: str, meaning: str, samples: list[tuple[int, Labels]]) -> list[str]:
    """Return the lines of all samples of one name."""
    lines = [f"# HELP {name} {meaning[0].upper()}{meaning[1:]}.", f"# TYPE {name} {kind}"]
    for value, labels in samples:
        pairs = ",".join(f'{label}="{text.translate(_ESCAPES)}"' for label, text in labels.items())
        lines.append(f"{name}{{{pairs}}} {value}" if pairs else f"{name} {value}")
    return lines
