"""The Spark session of tests: one a process, small, and quick to start."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tidings.lake import iceberg
from tidings.lake.warehouse import EXTENSIONS, NoIceberg
from tidings.sync.spark_session import DAEMON

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JARS = "spark.jars"  # Iceberg, if it is here: a Java knows only the jars of its start
_PARTS = 2  # for two cores, on the one that is left
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.default.parallelism": _PARTS,
    "spark.sql.shuffle.partitions": _PARTS,
    # Few rows: most of the time would be spent on compiling.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.python.daemon.module": DAEMON,
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@contextmanager
def session(folder: Path) -> Iterator[SparkSession]:
    """On one core; it works in *folder*. PySpark is imported when the first test asks for it."""
    import pyspark
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_HOME"] = str(_home(Path(pyspark.__file__).parent, folder / "home"))
    where = {
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        JARS: _iceberg(),
    }
    where |= EXTENSIONS if where[JARS] else {}
    builder = SparkSession.builder.master("local[1]")
    for name, value in (SETTINGS | where).items():
        builder = builder.config(name, value)
    started = builder.getOrCreate()
    started.sparkContext.setLogLevel("OFF")
    yield started
    started.stop()


def _home(spark: Path, folder: Path) -> Path:
    """Link *spark* into *folder*, without `python`: a worker, which must connect within 10 seconds,
    would compile the archive of PySpark there each time. So it imports what is installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in {"bin", "jars"} - {each.name for each in folder.iterdir()}:
        (folder / name).symlink_to(spark / name)
    return folder


def _iceberg() -> str:
    try:
        return str(iceberg.jar())
    except NoIceberg:
        return ""
