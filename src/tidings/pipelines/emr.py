"""Run a pipeline on EMR Serverless.

    python -m tidings.pipelines.emr --events-bus default pipeline.py

The job prints events as lines of JSON, with metrics in CloudWatch's embedded format. On SIGTERM it
stops after the current batches. The exit code is 1 if a store or a reader failed, and 0 otherwise.
EMR starts a failed job again, up to a few times an hour.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tidings.client.retries import stop_on_signals
from tidings.pipelines.events import emitter
from tidings.pipelines.messages import WrongPipeline
from tidings.pipelines.pipeline import Pipeline, load
from tidings.pipelines.running import Runner


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tidings.pipelines.emr")
    parser.add_argument("file", type=Path)
    parser.add_argument("--events-bus", metavar="NAME", help="also put each event on this bus")
    named = parser.parse_args(arguments)
    try:
        # The archive of a job is unpacked in a folder of `sys.path`.
        places = [named.file, *(Path(each) / named.file for each in sys.path)]
        made = load(next((each for each in places if each.is_file()), named.file))
    except WrongPipeline as error:
        parser.error(str(error))
    return 0 if _ran(made, named.events_bus) else 1


def _ran(made: Pipeline, bus: str | None) -> bool:
    with emitter(as_json=True, url=None, bus=bus, emf=True) as send:
        runner = Runner(made, send)
        stop_on_signals(runner.stop)
        return runner.run()


if __name__ == "__main__":
    sys.exit(main())
