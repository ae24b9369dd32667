"""A PostgreSQL of its own, from the machine's packages."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which

PATIENCE_S = 180.0
_SERVER_USER = "postgres"  # PostgreSQL does not run as root
_SETTINGS = ("listen_addresses=", "fsync=off", "max_connections=20", "wal_level=logical")


def binaries() -> Path | None:
    """Return the folder of `initdb`: Debian keeps it out of the PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


_USER = _SERVER_USER if os.geteuid() == 0 else None


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """Yield the address of an empty database."""
    make(folder)
    with serving(folder) as address:
        yield address


def make(folder: Path) -> None:
    """Make the files of an empty database."""
    programs = binaries()
    assert programs is not None
    data = folder / "data"
    data.mkdir()
    if _USER:
        _give(folder, _USER)
    options = ["-U", "tidings", "--auth=trust", "-E", "UTF8"]
    made: list[str | Path] = [programs / "initdb", "-D", data, *options]
    subprocess.run(made, check=True, user=_USER, cwd=folder)


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Yield the address of the database in *folder*, which `make` has made."""
    programs, data = binaries(), folder / "data"
    assert programs is not None
    settings = [part for each in _SETTINGS for part in ("-c", each)]
    started: list[str | Path] = [programs / "postgres", "-D", data, "-k", folder, *settings]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(started, stdout=log, stderr=log, user=_USER, cwd=folder) as server,
    ):
        try:
            _until_it_answers(folder)
            yield f"host={folder} user=tidings dbname=postgres"
        finally:
            server.send_signal(signal.SIGINT)  # SIGTERM waits for clients that stay connected


def _give(folder: Path, user: str) -> None:
    """Give *folder* to *user*, and make it reachable."""
    import shutil

    for part in (folder, folder / "data"):
        shutil.chown(part, user)
    for above in folder.parents:
        if above != Path("/tmp") and Path("/tmp") in above.parents:
            above.chmod(above.stat().st_mode | 0o011)


def _until_it_answers(folder: Path) -> None:
    import psycopg

    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            psycopg.connect(f"host={folder} user=tidings dbname=postgres").close()
            return
        except psycopg.OperationalError:
            assert time.monotonic() < deadline_s, (folder / "log").read_text()
            time.sleep(0.02)
