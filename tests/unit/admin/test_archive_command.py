"""`tidings archive` of a feed whose log then trims its pages.

On a twin: the commands find the follower and the state in tables of DynamoDB, and a stage's
schedule wakes the writer of the archive.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.compat.oplog.feed import Feed, op
from tests.compat.oplog.wire import until
from tests.twin import Twin
from tidings.admin.state_target import find
from tidings.client.cli.main import main
from tidings.core.archive.segments import decode, encode, keep_entries
from tidings.core.model.cursors import START
from tidings.core.model.pages import Page
from tidings.http.outbound.folder_archive import FolderArchive

FEED = "main"
SWEPT_S = 90  # the twin's schedule runs each minute, as the deployed one


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["archive", *arguments])


@dataclass(frozen=True)
class Archived:
    """A twin with pages in its archive."""

    twin: Twin
    folder: Path
    ids: list[str]

    @property
    def store(self) -> FolderArchive:
        return FolderArchive(self.folder)

    def give_up(self) -> None:
        """Trim the log as retention does, and expire its pages as DynamoDB does."""
        tables = find(FEED, None, self.twin.dynamodb_url)
        log, name = tables.stores.log, tables.settings.log_table
        head = log.head(FEED)
        log.raise_floor(FEED, head + 1)
        for number in range(1, head + 1):
            key: Any = {"feed": {"S": FEED}, "page": {"N": str(number)}}
            tables.client.delete_item(TableName=name, Key=key)

    def told(self) -> list[str]:
        """Return `insert a`, ... as a stream from before the first page gets them, up to `z`."""
        feed = Feed(self.twin.port, FEED)
        feed.post(op("z"))
        with feed.listening(START.encode()) as listener:
            found: list[str] = []
            while not found or found[-1] != "insert z":
                block = listener.next()
                found.append(f"{block.name} {block.data['id']}" if block.data else block.name)
        return found


@pytest.fixture(scope="module")
def archived(twin: Twin, data: Path) -> Archived:
    """Post two pages, and wait until the deployed function, which the schedule wakes, has archived
    them.
    """
    feed = Feed(twin.port, FEED)
    ids = feed.post(op("a"), op("b"))
    ids += feed.post(op("a", "update"), op("b", "delete"))
    archived = Archived(twin, data, ids)
    until(lambda: archived.store.list(FEED, 0, 9), SWEPT_S)
    return archived


@pytest.mark.java
def test_what_there_is(archived: Archived) -> None:
    """Parts, pages, bytes and the follower's lag are shown; without tables only the archive is."""
    where = ("--endpoint-url", archived.twin.dynamodb_url, "--archive", str(archived.folder))
    status = json.loads(run("status", "--json", *where).stdout)
    size = sum(each.stat().st_size for each in (archived.folder / "archive" / FEED).iterdir())

    assert status == {
        "feed": FEED,
        "archive": archived.folder.as_uri(),
        "parts": 1,
        "bytes": size,
        "first": 1,
        "last": 2,
        "gaps": [],
        "lag": {"checkpoint": 2, "pages": 0, "ms": 0, "floor": 1},
    }
    shown = run("status", "--archive", str(archived.folder)).stdout
    assert f"1 parts of {size:,} bytes, pages 1 to 2\n" in shown and "follower" not in shown
    assert "the follower is at page 2, 0 pages behind" in run("status", *where).stdout


@pytest.mark.java
def test_pages_are_shown_as_the_log_shows_them(archived: Archived) -> None:
    """A range is given by page numbers or by ids, with or without an end."""

    def shown(where: str) -> list[dict[str, Any]]:
        done = run("show", where, "--json", "--archive", archived.folder.as_uri())
        return [json.loads(line) for line in done.stdout.splitlines()]

    assert [each["id"] for each in shown("1..2")] == archived.ids
    assert shown("1..") == shown("1..2") == shown(f"{archived.ids[1]}..{archived.ids[2]}")
    assert shown("2") == shown(archived.ids[3]) == shown("1..2")[2:]
    assert [each["event"] for each in shown("2")] == ["update", "delete"]
    assert "value" in run("show", "2", "--archive", str(archived.folder)).stdout


@pytest.mark.java
def test_the_state_is_verified_and_rebuilt_by_it(archived: Archived) -> None:
    """The log no longer has the operations; the missing row is restored from the archive."""
    archived.give_up()
    tables = find(FEED, None, archived.twin.dynamodb_url)
    (row,) = tables.states().find(FEED, ["video/a"])
    key: Any = {"bucket": {"S": f"{FEED}#{row.bucket:02x}"}, "key": {"S": row.key}}
    tables.client.delete_item(TableName=tables.settings.state_table, Key=key)

    def done(command: str, *options: str) -> tuple[int, dict[str, Any]]:
        where = ("--endpoint-url", archived.twin.dynamodb_url, "--json")
        found = CliRunner().invoke(main, [command, *where, *options])
        return found.exit_code, json.loads(found.stdout.splitlines()[-1])

    assert done("verify")[1]["older"] == 1
    code, told = done("verify", "--archive", str(archived.folder))
    assert (code, told["differences"]["missing"]) == (3, 1)
    assert done("rebuild", "--archive", str(archived.folder))[1]["repaired"] == 1
    assert tables.states().find(FEED, ["video/a"]) == [row]
    assert done("verify", "--archive", str(archived.folder))[0] == 0


@pytest.mark.java
def test_T21_a_stream_of_the_twin_goes_on_from_its_archive(archived: Archived) -> None:
    """The log has nothing any more, and nothing is missing, compacted or not."""
    archived.give_up()
    assert archived.told() == ["insert a", "insert b", "update a", "delete b", "insert z"]

    (span,) = archived.store.list(FEED, 0, 9)
    pages = decode(archived.store.get(FEED, span) or b"")
    archived.store.put(FEED, *encode(keep_entries(pages, {(2, 0), (2, 1)})))
    archived.twin.stop()
    archived.twin.start()
    assert archived.told()[:2] == ["update a", "delete b"]


def test_an_archive_that_is_empty(tmp_path: Path) -> None:
    """It is shown as zero parts."""
    done = run("status", "--archive", str(tmp_path))

    assert (done.exit_code, "0 parts of 0 bytes\n" in done.stdout) == (0, True)


def test_gaps_are_named(tmp_path: Path) -> None:
    """A replay cannot get these pages."""
    store = FolderArchive(tmp_path)
    for number in (1, 2, 1002, 1005):
        store.put(FEED, *encode([Page(number, "", "", 0)]))
    done = run("status", "--archive", str(tmp_path))

    assert "missing: pages 3 to 1,001\n  missing: pages 1,003 to 1,004\n" in done.stdout
