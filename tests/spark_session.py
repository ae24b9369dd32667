"""A session of Spark for tests: small, and quick to start."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession
from tidings.sync import worker_daemon

_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Of a few rows most of the time would go into compiling.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.python.daemon.module": worker_daemon.MODULE,
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
UTC = {"spark.sql.session.timeZone": "UTC"}


@contextmanager
def session(folder: Path, *, parts: int, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """On one core, in *parts* parts, that works in *folder*; *settings* come on top."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    divided = dict.fromkeys(("spark.default.parallelism", "spark.sql.shuffle.partitions"), parts)
    where = {
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in (_SETTINGS | divided | where | dict(settings)).items():
        builder = builder.config(name, value)
    started = builder.getOrCreate()
    started.sparkContext.setLogLevel("OFF")
    yield started
    started.stop()
