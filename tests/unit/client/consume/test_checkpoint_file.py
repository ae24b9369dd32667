"""A state file is never half written and never lies."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.client.fake_log import event_id
from tidings.client.errors import WrongState
from tidings.client.files import StateFile, start


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    """The text of the file is the cursor; nothing else is left in the folder."""
    path = tmp_path / "seen"
    state = StateFile(path)

    assert state.load() is None
    state.save(event_id(7))
    assert path.read_text() == event_id(7)
    assert StateFile(path).load() == event_id(7)
    assert [path] == list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"", b"\n", b"  \n"])
def test_an_empty_file_holds_nothing(tmp_path: Path, content: bytes) -> None:
    """As `mktemp` makes it."""
    (tmp_path / "seen").write_bytes(content)

    assert StateFile(tmp_path / "seen").load() is None


@pytest.mark.parametrize("content", [b"hello", b"\xff\x00", b"x" * 5000])
def test_a_file_of_another_kind(tmp_path: Path, content: bytes) -> None:
    """Somebody else's file is refused, not overwritten."""
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


def test_a_file_written_by_hand(tmp_path: Path) -> None:
    """A line ending, blanks and upper-case digits do not matter."""
    (tmp_path / "seen").write_text(" 545B55C7F095528DD0F3863C\n")

    assert StateFile(tmp_path / "seen").load() == "545b55c7f095528dd0f3863c"


@pytest.mark.parametrize("cursor", ["now", "abc", "12345678901234", "x\n"])
def test_only_cursors_are_written(tmp_path: Path, cursor: str) -> None:
    """What could not be read again does not replace what can."""
    state = StateFile(tmp_path / "seen")
    state.save(event_id(1))

    with pytest.raises(WrongState, match="is no cursor"):
        state.save(cursor)
    assert StateFile(tmp_path / "seen").load() == event_id(1)


def test_where_to_start(tmp_path: Path) -> None:
    """A copy only where a state is to be kept and there is none yet, and it is allowed."""
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
    """The file behind a symbolic link is replaced, not the link."""
    (tmp_path / "link").symlink_to(tmp_path / "seen")
    StateFile(tmp_path / "link").save(event_id(1))

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "seen").read_text().strip() == event_id(1)
