"""Open a session of Spark: on this machine, with its output in a file, or on a cluster."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import MappingProxyType

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException, PySparkRuntimeError, PythonException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from tidings.sync.engine import Engine, Spark

SPARK_ERRORS = (Py4JJavaError, PySparkException)
# The module of the daemon that forks Spark's Python workers. Spark imports the daemon by this name.
# This module must not import the daemon, because the daemon imports the modules of all tasks.
DAEMON = "tidings.sync.worker_daemon"
JAVA_MIN = 17  # Spark 4 requires this version
DRIVER_MEMORY = "2g"  # sufficient for comparing 10,000,000 objects
_CONFIG = {
    "spark.driver.memory": DRIVER_MEMORY,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.daemon.module": DAEMON,
    # The partitions are small, so that all cores finish at about the same time.
    "spark.sql.files.maxPartitionBytes": "32m",
}
SMALL_BYTES = 8_000_000  # the size of about 60,000 lines, or of 600,000 gzipped lines
# Settings for inputs of up to `SMALL_BYTES`, which reduce the compilation of plans. For a dump of
# three lines, compilation took half of the CPU time.
_QUICK = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
}
# Loggers that write a page of Java's text to stderr for errors that PySpark also raises.
_ERRORS_TWICE = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_NOTHING: Mapping[str, str] = MappingProxyType({})


class NoJava(Exception):
    """Java is missing or too old. The message says which of these is the case."""


def sentence_of(error: Exception) -> str:
    """Shorten a multi-line error of Spark to one sentence.

    Return the last line of the exception of a Python function, and the first line of other errors.
    """
    lines = str(error).strip().splitlines()
    return f"Spark failed: {lines[-1 if isinstance(error, PythonException) else 0]}"


@contextmanager
def errors_of_tasks(
    kind: type[Exception], make_error: Callable[[str], Exception]
) -> Iterator[None]:
    """Raise `make_error(message)` instead of Spark's exception if a task fails with *kind*.

    *message* is the message of the task's exception, which is part of Spark's message.
    """
    try:
        yield
    except SPARK_ERRORS as error:
        raised = re.search(rf"{re.escape(f'{kind.__module__}.{kind.__name__}')}: (.+)", str(error))
        if raised is None:
            raise
        raise make_error(raised[1]) from None


def of_engine(name: str, folder: Path, *, size: int) -> AbstractContextManager[SparkSession]:
    """Return a session of the engine *name*, `spark` or `sail`, on this machine."""
    if name == "spark":
        return local(folder, size=size)
    from tidings.sync import sail

    return sail.session()


def current() -> Engine:
    """Return the engine of the session in this process."""
    if not is_remote():
        return Spark()
    from tidings.sync.sail import Sail

    return Sail()


@contextmanager
def local(folder: Path, *, size: int, more: Mapping[str, str] = _NOTHING) -> Iterator[SparkSession]:
    """Open a session of Spark on all cores, with its files in *folder*.

    Settings depend on *size*, the bytes of the input. *more* are settings of the caller. Spark
    writes its log to `spark.log` in *folder*. If this process already has a session, yield that
    session instead, and do not stop it.

    Raises:
        NoJava: Java is missing or too old.
    """
    running = _running()
    if running is not None:
        yield running
        return
    _check_java()
    for name in _ERRORS_TWICE:
        PySparkLogger.getLogger(name).disabled = True
    os.environ["PYSPARK_PYTHON"] = sys.executable  # noqa: TID251 PySpark has no other option
    builder = SparkSession.builder.master("local[*]").appName("tidings")
    quick = _QUICK if size <= SMALL_BYTES else _NOTHING
    for name, value in {**_CONFIG, **quick, **more}.items():
        builder = builder.config(name, value)
    builder = builder.config("spark.local.dir", str(folder / "spark"))
    builder = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    with _output_in(folder / "spark.log"):  # Java, which is started here, inherits this output
        started = builder.getOrCreate()
    with started:
        yield started


@contextmanager
def cluster() -> Iterator[SparkSession]:
    """Open the session that `spark-submit` configures; without `spark-submit`, one on all cores.

    If this process already has a session, yield that session instead, and do not stop it.
    """
    running = _running()
    if running is not None:
        yield running
        return
    builder = SparkSession.builder.appName("tidings").config("spark.sql.session.timeZone", "UTC")
    with builder.getOrCreate() as started:
        yield started


def _running() -> SparkSession | None:
    """Return the active session of this process; None if it has no session."""
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")  # noqa: TID251 Spark itself reads this variable
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise NoJava(f"Spark needs Java {JAVA_MIN} or newer, and java was not found")
    java_version = [java, "-version"]
    answer = subprocess.run(java_version, capture_output=True, text=True, check=False).stderr
    version = answer.partition('"')[2].partition(".")[0]
    if not version.isdigit() or int(version) < JAVA_MIN:
        raise NoJava(f"Spark needs Java {JAVA_MIN} or newer, and {java} is older")


@contextmanager
def _output_in(path: Path) -> Iterator[None]:
    """Within this context, redirect the output of this process and of new processes to *path*."""
    kept = os.dup(1), os.dup(2)
    with path.open("ab") as log:
        try:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            yield
        finally:
            for number, old in enumerate(kept, 1):
                os.dup2(old, number)
                os.close(old)
