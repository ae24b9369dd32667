"""State files, passwords, and the modes of files that hold data or secrets."""

from __future__ import annotations

import base64
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.client.command import tidings
from tests.unit.client.fake_feed import Running, event_id
from tidings.agent import queue, sender
from tidings.client.cli.main import main
from tidings.client.errors import NoPassword, WrongState
from tidings.client.feed_api import basic
from tidings.client.files import StateFile, make_private, read_password, start
from tidings.client.listener import SqliteBuffer
from tidings.server import operating
from tidings.server.sqlite.database import Database
from tidings.sync.table import Progress


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    """The text of the file is the cursor; nothing else is left in the folder."""
    path = tmp_path / "seen"
    state = StateFile(path)

    assert state.load() is None
    state.save(event_id(7))
    assert path.read_text() == event_id(7)
    assert StateFile(path).load() == event_id(7)
    assert [path] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "cursor"),
    [
        ("", None),
        ("\n", None),
        ("  \n", None),
        (" 545B55C7F095528DD0F3863C\n", "545b55c7f095528dd0f3863c"),
    ],
)
def test_a_file_that_others_made(tmp_path: Path, content: str, cursor: str | None) -> None:
    """`mktemp` creates an empty file; a person adds a line ending, blanks and upper-case digits."""
    (tmp_path / "seen").write_text(content)

    assert StateFile(tmp_path / "seen").load() == cursor


@pytest.mark.parametrize("content", [b"hello", b"\xff\x00", b"x" * 5000])
def test_a_file_of_another_kind(tmp_path: Path, content: bytes) -> None:
    """A file with other content is refused, not overwritten."""
    (tmp_path / "seen").write_bytes(content)

    with pytest.raises(WrongState, match="does not hold a cursor"):
        StateFile(tmp_path / "seen").load()
    assert (tmp_path / "seen").read_bytes() == content


@pytest.mark.parametrize("content", ["0", "1795195150974", "545b55c7f095528dd0f3863c"])
def test_O74_files_of_oplogc(tmp_path: Path, content: str) -> None:
    """Its files are read as they are, those of an old server too; and ours are such files."""
    (tmp_path / "seen").write_text(content)
    state = StateFile(tmp_path / "seen")

    assert state.load() == content
    state.save(event_id(1))
    text = (tmp_path / "seen").read_text()
    assert re.fullmatch(r"^(?:[0-9]{0,13}|[0-9a-f]{24})\Z", text)


@pytest.mark.parametrize("cursor", ["now", "abc", "12345678901234", "x\n"])
def test_only_cursors_are_written(tmp_path: Path, cursor: str) -> None:
    """What could not be read again does not replace what can."""
    state = StateFile(tmp_path / "seen")
    state.save(event_id(1))

    with pytest.raises(WrongState, match="is not a cursor"):
        state.save(cursor)
    assert StateFile(tmp_path / "seen").load() == event_id(1)


def test_where_to_start(tmp_path: Path) -> None:
    """The state of the file takes precedence over a given cursor, and the cursor over a copy.

    It starts with a copy only if a state file is given, the file is missing or empty, no cursor
    is given, and copies are allowed.
    """
    missing, empty, kept = (StateFile(tmp_path / name) for name in ("missing", "empty", "kept"))
    (tmp_path / "empty").touch()
    (tmp_path / "kept").write_text("5")

    assert start(missing, None, allow_replication=False) == "now"
    assert start(empty, None, allow_replication=False) == "now"
    assert start(missing, "7", allow_replication=True) == "7"
    assert start(None, None, allow_replication=True) == "now"
    assert start(kept, None, allow_replication=True) == "5"
    assert start(kept, "7", allow_replication=False) == "5"
    assert start(empty, None, allow_replication=True) == "0"
    assert start(missing, None, allow_replication=True) == "0"
    assert (tmp_path / "missing").read_text() == "0"


def test_no_such_folder(tmp_path: Path) -> None:
    """One sentence says which file and why."""
    state = StateFile(tmp_path / "none" / "seen")

    with pytest.raises(WrongState, match=r"cannot write .*seen: No such file or directory"):
        state.save(event_id(1))


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """The target of a symbolic link is replaced, not the link."""
    (tmp_path / "link").symlink_to(tmp_path / "seen")
    StateFile(tmp_path / "link").save(event_id(1))

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "seen").read_text().strip() == event_id(1)


def _run(*arguments: str, variable: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "TIDINGS_PASSWORD"}
    if variable is not None:
        environment["TIDINGS_PASSWORD"] = variable
    return tidings(*arguments, env=environment)


def _post(server: Running, *options: str, variable: str | None = None) -> str:
    """Return the password that a post with *options* sends."""
    done = _run("post", "--url", server.url, *options, "insert", "a", "b", variable=variable)
    assert done.returncode == 0, done.stderr
    scheme, _, encoded = server.feed.requests[-1].get("authorization", "").partition(" ")
    assert scheme in ("", "Basic")
    return base64.b64decode(encoded).decode()


def test_basic_without_a_user() -> None:
    """oplog's clients send an empty user name; any text is a password, as UTF-8."""
    assert basic("geheim") == {"Authorization": "Basic OmdlaGVpbQ=="}
    assert base64.b64decode(basic("pä:ss")["Authorization"][6:]).decode() == ":pä:ss"
    assert basic("") == {}


@pytest.mark.parametrize("content", [b"s3cret", b"s3cret\n", b"s3cret\r\n"])
def test_a_file_of_one_line(tmp_path: Path, content: bytes) -> None:
    """An editor or `echo` writes such a file."""
    (tmp_path / "password").write_bytes(content)

    assert read_password(tmp_path / "password") == "s3cret"


@pytest.mark.parametrize("content", [b"", b"\n", b"a\nb\n", b"\xff", b"x" * 2000, b"a\x00"])
def test_a_file_that_holds_no_password(tmp_path: Path, content: bytes) -> None:
    """The error names the file, and shows nothing of its content."""
    (tmp_path / "password").write_bytes(content)

    with pytest.raises(NoPassword, match=r"password (must contain one line|is empty)"):
        read_password(tmp_path / "password")


def test_where_a_command_takes_it_from(server: Running, tmp_path: Path) -> None:
    """It may come from a file, the variable or the command line; both options override the
    variable."""
    (tmp_path / "password").write_text("from file\n")
    file = ("--password-file", str(tmp_path / "password"))

    assert _post(server) == ""
    assert _post(server, *file) == ":from file"
    assert _post(server, variable="from variable") == ":from variable"
    assert _post(server, *file, variable="from variable") == ":from file"
    assert _post(server, "--password", "typed", variable="from variable") == ":typed"


@pytest.mark.parametrize("transport", ["ws", "sse"])
def test_tail_sends_it(server: Running, transport: str) -> None:
    """HTTP Basic on Server-Sent Events, a field of the subscription on a WebSocket."""
    server.append({"event": "insert", "type": "a", "id": "b"})
    server.feed.password = "geheim"
    options = ("--url", server.url, "--from", "0", "--count", "1", "--transport", transport)
    assert _run("tail", *options, variable="geheim").returncode == 0

    if transport == "ws":
        assert server.feed.messages[0]["password"] == "geheim"
    else:
        assert server.feed.requests[0]["authorization"] == "Basic OmdlaGVpbQ=="
        assert "geheim" not in server.feed.requests[0]["path"]


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
