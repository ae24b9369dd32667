"""`/metrics`: what is counted, as Prometheus reads it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidings.server.host import Host

_WORD = re.compile(r"(?<!^)(?=[A-Z])")


def rendered(host: Host) -> str:
    """
    In the text format 0.0.4 (https://prometheus.io/docs/instrumenting/exposition_formats/).

    Counters are named as the metrics of a stage, in snake case.
    """
    lines = []
    for name, value in sorted(host.metrics.items()):
        metric = f"tidings_{_WORD.sub('_', name).lower()}_total"
        lines += [f"# TYPE {metric} counter", f"{metric} {value}"]
    lines += ["# TYPE tidings_websocket_connections gauge"]
    lines += [f"tidings_websocket_connections {host.sockets.count}"]
    for metric, of in (("head", host.log.head), ("floor", host.log.floor)):
        lines.append(f"# TYPE tidings_log_{metric} gauge")
        lines += [f'tidings_log_{metric}{{feed="{f}"}} {of(f)}' for f in _feeds(host)]
    lines.append("# TYPE tidings_follower_checkpoint gauge")
    for feed in _feeds(host):
        for name, page in sorted(host.followers.checkpoints(feed).items()):
            labels = f'feed="{feed}",follower="{name}"'
            lines.append(f"tidings_follower_checkpoint{{{labels}}} {page}")
    return "\n".join(lines) + "\n"


def _feeds(host: Host) -> list[str]:
    return sorted(host.settings.feeds)
