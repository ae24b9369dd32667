"""Spark on this machine, and its noise in a file."""

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
from tidings.sync import worker_daemon

SPARK_ERRORS = (Py4JJavaError, PySparkException)
JAVA_MIN = 17  # of Spark 4
DRIVER_MEMORY = "2g"  # 10,000,000 objects were compared within it
_CONFIG = {
    "spark.driver.memory": DRIVER_MEMORY,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.daemon.module": worker_daemon.MODULE,
    "spark.sql.files.maxPartitionBytes": "32m",  # the last parts keep one core busy, not the other
}
SMALL_BYTES = 8_000_000  # of a dump: some 60,000 lines, gzipped ten times as many
# Of little work most is to compile for much: measured with three lines, half of the CPU time.
_QUICK = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
}
# Loggers of what is raised as well: a name that is wrong in a query is a page of Java on stderr.
_ERRORS_TWICE = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_NOTHING: Mapping[str, str] = MappingProxyType({})


class NoJava(Exception):
    """The message says what is missing, in one sentence."""


def sentence_of(error: Exception) -> str:
    """What is told of one of `SPARK_ERRORS`, which go over many lines: of Python's the last."""
    lines = str(error).strip().splitlines()
    return f"Spark failed: {lines[-1 if isinstance(error, PythonException) else 0]}"


@contextmanager
def errors_of_tasks(kind: type[Exception], told: Callable[[str], Exception]) -> Iterator[None]:
    """
    What a task raised as *kind* is raised here, as what *told* makes of its message: Spark wraps
    it in words of its own.
    """
    try:
        yield
    except SPARK_ERRORS as error:
        raised = re.search(rf"{re.escape(f'{kind.__module__}.{kind.__name__}')}: (.+)", str(error))
        if raised is None:
            raise
        raise told(raised[1]) from None


def of_engine(name: str, folder: Path, *, size: int) -> AbstractContextManager[SparkSession]:
    """That of `spark` (`local`) or of `sail`."""
    if name == "spark":
        return local(folder, size=size)
    from tidings.sync.engines import sail

    return sail.session()


@contextmanager
def local(folder: Path, *, size: int, more: Mapping[str, str] = _NOTHING) -> Iterator[SparkSession]:
    """
    A session on all cores for *size* bytes, that works in *folder* and logs to `spark.log` there;
    *more* are settings of the caller. One that this process has already is used, and left running.

    Raises:
        NoJava: there is none, or it is too old.
    """
    running = _running()
    if running is not None:
        yield running
        return
    _check_java()
    for name in _ERRORS_TWICE:
        PySparkLogger.getLogger(name).disabled = True
    os.environ["PYSPARK_PYTHON"] = sys.executable  # noqa: TID251 the only way to say it
    builder = SparkSession.builder.master("local[*]").appName("tidings")
    quick = _QUICK if size <= SMALL_BYTES else _NOTHING
    for name, value in {**_CONFIG, **quick, **more}.items():
        builder = builder.config(name, value)
    builder = builder.config("spark.local.dir", str(folder / "spark"))
    builder = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    with _output_in(folder / "spark.log"):  # Java keeps what it is started with
        started = builder.getOrCreate()
    with started:
        yield started


@contextmanager
def cluster() -> Iterator[SparkSession]:
    """The session that `spark-submit` describes, or one that is there; without it, on all cores."""
    running = _running()
    if running is not None:
        yield running
        return
    builder = SparkSession.builder.appName("tidings").config("spark.sql.session.timeZone", "UTC")
    with builder.getOrCreate() as started:
        yield started


def _running() -> SparkSession | None:
    """The session of this process, whichever thread began it."""
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")  # noqa: TID251 where Spark itself looks
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise NoJava(f"Spark needs Java {JAVA_MIN} or newer, and there is no java here")
    java_version = [java, "-version"]
    answer = subprocess.run(java_version, capture_output=True, text=True, check=False).stderr
    version = answer.partition('"')[2].partition(".")[0]
    if not version.isdigit() or int(version) < JAVA_MIN:
        raise NoJava(f"Spark needs Java {JAVA_MIN} or newer, and {java} is older")


@contextmanager
def _output_in(path: Path) -> Iterator[None]:
    """What this process and those it starts meanwhile would print goes to *path*."""
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
