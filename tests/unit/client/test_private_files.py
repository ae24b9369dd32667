"""Files that hold data or secrets belong to their user alone, whatever the umask."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidings.agent import queue, sender
from tidings.client.cli.main import main
from tidings.client.files import StateFile, make_private
from tidings.client.listener import SqliteBuffer
from tidings.server import operating
from tidings.server.sqlite.database import Database
from tidings.sync.table import Progress


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    """Set the umask of most systems, which makes new files readable by all users."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def readable_by_others(folder: Path) -> list[str]:
    return sorted(str(each) for each in folder.rglob("*") if each.is_file() and _others(each))


def _others(path: Path) -> bool:
    return bool(path.stat().st_mode & 0o077)


def test_a_database_and_a_backup_of_a_stopped_server(tmp_path: Path) -> None:
    """This includes the files next to an open database, and a backup before it has its final
    name."""
    database = Database(tmp_path / operating.FILE)
    assert readable_by_others(tmp_path) == []
    database.close()

    operating.back_up(tmp_path, tmp_path / "copy.db")
    assert readable_by_others(tmp_path) == []


def test_the_queue_of_an_agent(tmp_path: Path) -> None:
    """This includes its lock and the refused operations; a queue of an earlier release is
    restricted."""
    folder = tmp_path / "queue"
    with queue.lock_folder(folder):
        (folder / queue.NAME).touch(mode=0o644)
        opened = queue.Store(folder)
        assert sender.keep(folder, [b"refused"])

        assert folder.stat().st_mode & 0o777 == 0o700
        assert readable_by_others(tmp_path) == []
        opened.close()


def test_what_clients_keep(tmp_path: Path) -> None:
    """Cursors, items of listeners, progress of a table's sync."""
    StateFile(tmp_path / "cursor").save("0" * 24)
    SqliteBuffer(tmp_path / "items").put("{}")
    Progress(tmp_path / "progress", {})

    assert readable_by_others(tmp_path) == []


def test_what_a_command_writes(tmp_path: Path) -> None:
    """This includes commands without a rule of their own."""
    assert main.callback is not None
    with main.make_context("tidings", ["serve"]) as context:
        context.invoke(main.callback)
        (tmp_path / "out").touch()
    (tmp_path / "later").touch()

    assert readable_by_others(tmp_path) == [str(tmp_path / "later")]


def test_a_file_that_cannot_be_made_is_left_to_sqlite(tmp_path: Path) -> None:
    """It has the words for it."""
    make_private(tmp_path / "missing" / "file")
