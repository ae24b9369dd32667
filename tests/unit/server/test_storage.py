"""The files of a server that are moved, removed, damaged, or on a full disk (P9.3, P9.6, P4.6).

No post is acknowledged that a restart would not find; answers, health, status and the log say why.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from tidings.client.cli.main import main
from tidings.core.errors import Unavailable
from tidings.server import operating
from tidings.server.running import NotReady, Server
from tidings.server.sqlite.database import Database

WITHIN_S = 180.0
CLIENT = httpx.Client(timeout=WITHIN_S)
DISK_PAGE = 4096  # bytes of a page of SQLite
LEAVES = {10, 13}  # the first byte of a page of SQLite that leads to no other page


def post(server: Server, name: str, data: object = None) -> httpx.Response:
    operation = {"event": "update", "type": "video", "id": name, "data": data}
    return CLIENT.post(f"{server.url}ops", json=operation)


def names(server: Server, since: int = 0) -> list[str]:
    """Return the ids of the operations in the log."""
    found: list[str] = []
    while True:
        answer = (
            CLIENT.get(f"{server.url}changes?since={since}&limit=1000").raise_for_status().json()
        )
        found += [each["data"]["id"] for each in answer["changes"]]
        if answer["atEnd"]:
            return found
        since = answer["next"]


def report(server: Server) -> tuple[int, str, str, tuple[int, str]]:
    """Return the status code, status and problems of the status, and the health."""
    answer = CLIENT.get(f"{server.url}status")
    told, health = answer.json(), CLIENT.get(f"{server.url}health")
    problems = "; ".join(told.get("problems", []))
    return answer.status_code, told["status"], problems, (health.status_code, health.text)


def check_refused(server: Server, code: str, place: str) -> None:
    """Check that a post is refused, and that every report names *place*."""
    error = post(server, "refused").json()["error"]
    assert (error["code"], error["value"]) == (code, "") and place in error["message"]
    status, word, problems, (health, text) = report(server)
    assert (status, word, health) == (503, "UNAVAILABLE", 503)
    assert place in problems and place in text and "ERROR tidings.server" in server.errors()
    assert place in server.errors() and "Traceback" not in server.errors()


def check_works(server: Server, name: str) -> None:
    """Check that a post is stored, and that no report has a problem."""
    until = time.monotonic() + WITHIN_S
    while post(server, name).status_code != 204 or report(server)[0] != 200:
        assert time.monotonic() < until, report(server)
        time.sleep(0.1)
    assert report(server) == (200, "OK", "", (200, "ok"))


def read_everywhere(server: Server) -> None:
    """Read with many clients at once, so that the server needs new connections."""

    def read(_: int) -> int:
        return CLIENT.get(f"{server.url}changes").status_code

    with ThreadPoolExecutor(40) as pool:
        assert {*pool.map(read, range(40))} <= {200, 503}


def backed_up(server: Server, target: Path) -> str:
    done = CliRunner().invoke(main, ["backup", *server.locator, str(target)])
    assert done.exit_code == 1 and not target.exists(), done.output
    return done.output


def _replace(data: Path) -> Callable[[], object]:
    file, kept = data / operating.FILE, data / "kept"
    shutil.copy(file, data / "other")
    file.rename(kept)
    (data / "other").rename(file)
    return lambda: kept.rename(file)


def _move(path: Path) -> Callable[[], object]:
    moved = path.rename(path.with_name("moved"))
    return lambda: moved.rename(path)


def test_a_file_that_returns_is_used_again(tmp_path: Path) -> None:
    """No refused post is in the log."""
    with Server() as server:
        data, kept = server.data, ["before"]
        post(server, "before")
        for take in (
            partial(_move, data),
            partial(_move, data / operating.FILE),
            partial(_move, data / f"{operating.FILE}-wal"),
            partial(_replace, data),
        ):
            back = take()
            check_refused(server, "storage_moved", operating.FILE)
            read_everywhere(server)
            backed_up(server, tmp_path / "backup.db")
            back()
            check_works(server, f"after-{len(kept)}")
            kept.append(f"after-{len(kept)}")
        server.kill()
        server.start()
        assert [each for each in names(server) if each != "refused"] == kept


@pytest.mark.parametrize("lost", ["feed.db*", "", "feed.db", "feed.db-wal", "feed.db-shm"])
def test_a_removed_file_is_reported_and_not_created_again(tmp_path: Path, lost: str) -> None:
    """The server saves the data that it can still write when it stops."""
    with Server() as server:
        post(server, "before")
        if lost:
            for file in server.data.glob(lost):
                file.unlink()
        else:
            shutil.rmtree(server.data)
        check_refused(server, "storage_moved", lost.rstrip("*") or "feed.db")
        read_everywhere(server)
        assert not [*server.data.glob(lost or "*")]
        backed_up(server, tmp_path / "backup.db")
        server.stop()
        if lost in ("feed.db-wal", "feed.db-shm"):
            server.start()
            assert names(server)[0] == "before"


def test_a_file_is_missed_without_a_request(tmp_path: Path) -> None:
    """Health and status check it, although nothing was posted."""
    with Server() as server:
        (server.data / operating.FILE).rename(tmp_path / "moved")
        assert report(server)[:2] == (503, "UNAVAILABLE")


@pytest.mark.parametrize("file", ["feed.db", "feed.db-wal"])
def test_a_truncated_file_is_not_used_until_a_restart(file: str) -> None:
    with Server() as server:
        post(server, "before")
        os.truncate(server.data / file, 0)
        check_refused(server, "storage_moved", file)
        check_refused(server, "storage_moved", file)  # also if the file has grown again


@pytest.mark.parametrize("file", ["", "feed.db", "feed.db-wal"])
def test_a_read_only_file_or_folder_refuses_posts(volume: Callable[[int], Path], file: str) -> None:
    """A server could not start with it again."""
    folder = volume(16)
    with Server(data=folder / "data") as server:
        post(server, "before")
        place = str(server.data / file)
        subprocess.run(["mount", "--bind", place, place], check=True)
        try:
            subprocess.run(["mount", "-o", "remount,bind,ro", place], check=True)
            check_refused(server, "storage_read_only", "read-only")
            subprocess.run(["mount", "-o", "remount,bind,rw", place], check=True)
            check_works(server, "after")
        finally:
            subprocess.run(["umount", "-l", place], check=True)


# A damaged file.

ERRORS = (
    sqlite3.Error("a"),
    sqlite3.DatabaseError("database disk image is malformed"),
    sqlite3.IntegrityError("UNIQUE constraint failed"),
    sqlite3.InterfaceError("b"),
    sqlite3.InternalError("c"),
    sqlite3.NotSupportedError("d"),
    sqlite3.OperationalError("Could not decode to UTF-8 column 'line' with text 'secret'"),
    sqlite3.ProgrammingError("Cannot operate on a closed database."),
    sqlite3.DataError("e"),
)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_every_error_of_sqlite_is_translated(tmp_path: Path, error: sqlite3.Error) -> None:
    with closing(Database(tmp_path / "feed.db")) as database:

        def fail(_: object) -> None:
            raise error

        for run in (database.write, lambda run: _reading(database, run)):
            with pytest.raises(Unavailable, match=r"^(?!.*secret)"):
                run(fail)


def _reading(database: Database, run: Callable[[object], object]) -> None:
    with database.reading() as sql:
        run(sql)


def _damage(file: Path) -> str:
    """Overwrite the pages of the file, in the log and the state, with a mark; return the mark.

    They are leaves: rows of the state are also in pages that lead to many others.
    """
    content = file.read_bytes()
    for mark in (f"mark-{number:04d}" for number in range(150, 200)):
        pages = (content[at:][:DISK_PAGE] for at in range(0, len(content), DISK_PAGE))
        found = {at: page for at, page in enumerate(pages) if mark.encode() in page}
        if len(found) >= 2 and all(page[0] in LEAVES for page in found.values()):
            with file.open("r+b") as opened:
                for at in found:
                    opened.seek(at * DISK_PAGE)
                    opened.write(os.urandom(DISK_PAGE))
            return mark
    raise AssertionError(len(content))


def test_a_damaged_place_is_named_and_the_rest_is_served(tmp_path: Path) -> None:
    with Server() as server:
        for number in range(300):
            post(server, f"a-{number}", f"mark-{number:04d}" + "x" * 300)
        server.stop()
        mark = _damage(server.data / operating.FILE)
        server.start()
        assert report(server)[:2] == (200, "OK")  # nothing has read it
        for path, accept in (
            ("ops?lastEventId=0", "text/event-stream"),
            ("ops?lastEventId=0", "application/x-ndjson"),
            ("objects", "*/*"),
        ):
            text = _copy(f"{server.url}feeds/main/{path}", accept)
            assert "live" not in text and mark not in text
        since = CLIENT.get(f"{server.url}changes?limit=1").json()["next"]
        before = CLIENT.get(f"{server.url}changes?since={since}").raise_for_status().json()
        assert before["changes"] and not before["atEnd"]  # the pages before the damaged one
        assert CLIENT.get(f"{server.url}changes?since={before['next']}").status_code == 503
        assert names(server, 250 * 1024)[-1] == "a-299"
        # Some objects belong to a damaged page, or to a neighbour that is rearranged with it.
        posts = [post(server, f"after-{number}").status_code for number in range(20)]
        assert set(posts) <= {204, 503} and posts.count(204) > 10, posts
        until = time.monotonic() + WITHIN_S
        while "table" not in (told := report(server))[2]:
            assert time.monotonic() < until, told
            time.sleep(0.1)
        assert (told[:2], told[3]) == ((200, "STALLED"), (200, "ok"))
        assert "table pages" in told[2] and "table rows" in told[2]
        assert "feed.db, table" in backed_up(server, tmp_path / "backup.db")
        assert CLIENT.get(f"{server.url}metrics").status_code == 200
        server.stop()
        for command in ("verify", "rebuild"):
            done = CliRunner().invoke(main, [command, *server.locator])
            assert done.exit_code == 1 and "feed.db, table" in done.output
        assert "feed.db, table" in backed_up(server, tmp_path / "backup.db")
        assert "Traceback" not in server.errors()


@pytest.mark.parametrize("part", ['"event"', '"}', '"id":'])
def test_a_changed_byte_of_a_row_is_reported(part: str) -> None:
    """SQLite has no checksums, so that it returns such a row."""
    with Server() as server:
        post(server, "a", "mark")
        until = time.monotonic() + WITHIN_S
        while not CLIENT.get(f"{server.url}feeds/main/objects").text.count("mark"):
            assert time.monotonic() < until
            time.sleep(0.1)
        server.stop()
        with closing(sqlite3.connect(server.data / operating.FILE)) as sql, sql:
            changed = "UPDATE rows SET line = replace(line, ?, ?)"
            assert sql.execute(changed, (part, part.replace('"', " "))).rowcount == 1
        server.start()
        for path in ("objects", "objects/video/a", "rows?bucket=0&buckets=1", "objects?ids=a"):
            answer = CLIENT.get(f"{server.url}feeds/main/{path}")
            assert answer.status_code < 500 or answer.json()["error"]["code"] == "storage_damaged"
            assert answer.status_code != 500, (path, answer.text)
        assert "Traceback" not in server.errors()


def _copy(url: str, accept: str) -> str:
    text = ""
    with suppress(httpx.HTTPError), CLIENT.stream("GET", url, headers={"accept": accept}) as answer:
        for part in answer.iter_text():
            text += part
            if "live" in text:
                break
    return text


@pytest.mark.parametrize("table", ["heads", "documents", "followers", "sqlite_schema"])
def test_a_start_with_a_damaged_table_says_so(table: str) -> None:
    """The server does not start without the data that it needs for every feed."""
    with Server() as server:
        post(server, "a")
        server.stop()
        file = server.data / operating.FILE
        with closing(sqlite3.connect(file)) as sql:
            pages = "SELECT rootpage FROM sqlite_schema WHERE name = ?"
            (page,) = sql.execute(pages, (table,)).fetchone() or (1,)
        with file.open("r+b") as opened:
            opened.seek((page - 1) * DISK_PAGE)
            opened.write(os.urandom(DISK_PAGE))
        with pytest.raises(NotReady, match=r"feed\.db") as refused:
            server.start()
        assert "Traceback" not in str(refused.value)


# A full disk.


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Return a function that mounts a file system of a number of megabytes."""
    mounted: list[Path] = []

    def mount(megabytes: int) -> Path:
        folder = tmp_path / f"volume-{len(mounted)}"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
        if os.geteuid() or subprocess.run(command, capture_output=True).returncode:
            pytest.skip("needs the right to mount a file system")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "-l", folder], check=True)


def _fill(server: Server) -> Any:
    """Post until a post is refused; return the error."""
    number = 0
    while (answer := post(server, f"a-{number}", os.urandom(20_000).hex())).status_code == 204:
        number += 1
    assert answer.status_code == 503 and number > 30
    return json.loads(answer.text)["error"]


@pytest.mark.parametrize("megabytes", [12, 48])
def test_a_full_disk_is_reported_and_left_when_there_is_space(
    volume: Callable[[int], Path], megabytes: int
) -> None:
    """The write-ahead log does not keep the last space, also over a restart."""
    folder = volume(megabytes)
    with Server(data=folder / "data") as server:
        other = folder / "other"
        other.write_bytes(bytes(2 * 1024 * 1024))
        assert _fill(server)["code"] == "disk_full"
        check_refused(server, "disk_full", "the disk is full")
        assert len(names(server)) > 30
        if megabytes == 12:
            server.kill()
            server.start()
            for size in (20_000, 1_000, 10):
                while post(server, "small", os.urandom(size).hex()).status_code == 204:
                    pass
            check_refused(server, "disk_full", "the disk is full")
        other.unlink()
        check_works(server, "after")
        assert post(server, "last", os.urandom(20_000).hex()).status_code == 204
        assert names(server)[-1] == "last"
        assert "the problem has ended" in server.errors()
