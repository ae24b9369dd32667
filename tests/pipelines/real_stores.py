"""Stores of the machine's packages, each started for the tests in a folder of its own."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import Any, NamedTuple

import psycopg
import redis

PATIENCE_S = 60.0


class RealStore(NamedTuple):
    """
    A store of the name *name* that is there.

    *text* makes it, in a pipeline's file; *objects* are those that it holds, by their id.
    """

    name: str
    text: str
    objects: Callable[[], dict[str, Any]]


@contextmanager
def daemon(
    command: Sequence[str | Path], log: Path, answers: Callable[[], object]
) -> Iterator[None]:
    """A server until the block ends; it is there when *answers* raises nothing."""
    with (
        log.open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=output) as process,
    ):
        try:
            deadline_s = time.monotonic() + PATIENCE_S
            while True:
                try:
                    answers()
                    break
                except Exception:  # noqa: BLE001 each client has errors of its own
                    there = process.poll() is None and time.monotonic() < deadline_s
                    assert there, log.read_text()[-2000:]
                    time.sleep(0.05)
            yield
        finally:
            process.kill()


def redis_program() -> str | None:
    return which("valkey-server") or which("redis-server")


@contextmanager
def running_redis(folder: Path) -> Iterator[str]:
    """The address of an empty one."""
    program, socket = redis_program(), folder / "socket"
    assert program is not None
    command: list[str | Path] = [
        program,
        "--port",
        "0",
        "--unixsocket",
        socket,
        "--save",
        "",
        "--dir",
        folder,
    ]
    with (
        redis.Redis(unix_socket_path=str(socket)) as client,
        daemon(command, folder / "log", client.ping),
    ):
        yield f"unix://{socket}"


def hash_of(url: str, key: str) -> dict[str, Any]:
    """The objects in the hash *key*."""
    with redis.Redis.from_url(url) as client:
        fields = client.hgetall(key)
    assert isinstance(fields, dict)
    return {name.decode().partition("/")[2]: json.loads(text) for name, text in fields.items()}


def table_of(dsn: str, table: str) -> dict[str, Any]:
    """The objects in *table* of a PostgreSQL."""
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(f"SELECT id, data FROM {table}").fetchall()
    return {str(name): data for name, data in rows}
