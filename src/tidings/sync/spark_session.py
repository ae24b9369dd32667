"""Start Spark on this machine, and redirect its output to a file."""

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
# The module of the daemon that forks Python's workers. It is named and not imported, because it
# imports the workers' other modules.
DAEMON = "tidings.sync.worker_daemon"
JAVA_MIN = 17  # for Spark 4
DRIVER_MEMORY = "2g"  # sufficient for comparing 10,000,000 objects
_CONFIG = {
    "spark.driver.memory": DRIVER_MEMORY,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.daemon.module": DAEMON,
    "spark.sql.files.maxPartitionBytes": "32m",  # small, so that all cores end together
}
SMALL_BYTES = 8_000_000  # a dump of about 60,000 lines, or of 600,000 if it is gzipped
# Settings for little work: with three lines, compiling took half of the CPU time.
_QUICK = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
}
# Loggers that write a page of Java to stderr for errors that are also raised.
_ERRORS_TWICE = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_NOTHING: Mapping[str, str] = MappingProxyType({})


class NoJava(Exception):
    """Java is missing or too old; the message says which."""


def sentence_of(error: Exception) -> str:
    """
    Shorten a multi-line error of Spark to one sentence.

    It is the last line for a Python exception, otherwise the first.
    """
    lines = str(error).strip().splitlines()
    return f"Spark failed: {lines[-1 if isinstance(error, PythonException) else 0]}"


@contextmanager
def errors_of_tasks(kind: type[Exception], told: Callable[[str], Exception]) -> Iterator[None]:
    """
    Raise *told*(message) if a task failed with an exception *kind* with this message.

    Spark puts the exception of a task into the message of its own.
    """
    try:
        yield
    except SPARK_ERRORS as error:
        raised = re.search(rf"{re.escape(f'{kind.__module__}.{kind.__name__}')}: (.+)", str(error))
        if raised is None:
            raise
        raise told(raised[1]) from None


def of_engine(name: str, folder: Path, *, size: int) -> AbstractContextManager[SparkSession]:
    """Return a session of the engine *name*: `spark` (`local`) or `sail`."""
    if name == "spark":
        return local(folder, size=size)
    from tidings.sync import sail

    return sail.session()


def current() -> Engine:
    """Return the engine of this process's session."""
    if not is_remote():
        return Spark()
    from tidings.sync.sail import Sail

    return Sail()


@contextmanager
def local(folder: Path, *, size: int, more: Mapping[str, str] = _NOTHING) -> Iterator[SparkSession]:
    """
    Open a session on all cores for *size* bytes, with its files in *folder*.

    The session logs to `spark.log` in *folder*. *more* are settings of the caller. An existing
    session of this process is used instead, and left running.

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
    with _output_in(folder / "spark.log"):  # Java inherits the redirected output
        started = builder.getOrCreate()
    with started:
        yield started


@contextmanager
def cluster() -> Iterator[SparkSession]:
    """
    Use the running session, or open the one that `spark-submit` configures (default: all cores).
    """
    running = _running()
    if running is not None:
        yield running
        return
    builder = SparkSession.builder.appName("tidings").config("spark.sql.session.timeZone", "UTC")
    with builder.getOrCreate() as started:
        yield started


def _running() -> SparkSession | None:
    """Return the session of any thread of this process; None if it is missing."""
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")  # noqa: TID251 Spark itself reads it
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
    """Redirect the output of this process, and of processes started in the context, to *path*."""
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
