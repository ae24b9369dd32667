"""The process that `bench.replay` measures: reads a feed and says how long that took."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

from tidings.core.catchup.catchup import Progress
from tidings.core.model.filters import EVERYTHING

from bench import engine


def main(url: str, feed: str, count: int) -> None:
    catch_up = engine.adapters(url).catch_up
    progress, seen = Progress(0), 0
    started = time.perf_counter()
    while seen < count:
        step = catch_up.step(feed, progress, EVERYTHING)
        progress = step.progress
        seen += len(step.events)
    seconds = time.perf_counter() - started
    peak = _peak_bytes()
    sys.stdout.write(json.dumps({"seconds": seconds * count / seen, "bytes": peak}))


def _peak_bytes() -> int:
    """Of this program alone; getrusage would count what its parent held when it forked."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
