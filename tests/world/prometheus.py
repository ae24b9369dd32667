"""A real Prometheus with a configuration of its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.compat.oplog.wire import PATIENCE_S
from tidings.server.processes import free_port

STOP_S = 30.0


class Prometheus:
    """Prometheus with the configuration *text*, which is YAML.

    Files that the configuration names are in *folder*, which also gets the data.
    """

    def __init__(self, folder: Path, text: str) -> None:
        self._url = f"http://127.0.0.1:{free_port()}"
        self._folder, self._file = folder, folder / "prometheus.yml"
        self._file.write_text(text)

    def get(self, path: str, **query: str) -> Any:
        """Return the data of an answer of the API.

        Raises:
            httpx.HTTPError, ValueError, KeyError: it has not started yet, or refuses the request.
        """
        url = f"{self._url}/api/v1/{path}"
        return httpx.get(url, params=query, timeout=PATIENCE_S).json()["data"]

    def query(self, expression: str) -> Sequence[Mapping[str, Any]]:
        """Return the newest values of *expression*; [] while it has not started."""
        try:
            found: Sequence[Mapping[str, Any]] = self.get("query", query=expression)["result"]
        except (httpx.HTTPError, json.JSONDecodeError, KeyError):
            return []
        return found

    def has(self, expression: str, value: float) -> bool:
        """Return True if *value* is the newest one of *expression*."""
        found = self.query(expression)
        return bool(found) and float(found[0]["value"][1]) == value

    @contextmanager
    def running(self) -> Iterator[None]:
        with (self._folder / "prometheus.log").open("w") as log:
            process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={self._file}",
                    f"--storage.tsdb.path={self._folder / 'data'}",
                    f"--web.listen-address={self._url.removeprefix('http://')}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            try:
                yield
            finally:
                process.terminate()
                process.wait(STOP_S)
