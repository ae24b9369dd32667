"""Waiting for the target, and saying so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidings.agent import sender
from tidings.agent.intake import NOTICE_EVERY_S, Notices
from tidings.agent.queue import default_folder
from tidings.agent.sender import DELAY_S_MAX, Retrying


@pytest.mark.parametrize(("chance", "share"), [(0.0, 0.5), (0.5, 1.0), (1.0, 1.5)])
def test_delays_grow_as_oplogs_did(chance: float, share: float) -> None:
    """They grow by half from half a second to a minute, and each varies by up to half."""
    retrying = Retrying(lambda: chance)
    delays = [retrying.next_s() for _ in range(20)]

    assert delays[:3] == pytest.approx([0.5 * share, 0.75 * share, 1.125 * share])
    assert delays[-1] == pytest.approx(DELAY_S_MAX * share)
    retrying.reset()
    assert retrying.next_s() == pytest.approx(0.5 * share)


def test_a_line_a_minute_of_each_kind() -> None:
    """An outage does not fill the journal."""
    said: list[str] = []
    now_s = 100.0
    notices = Notices(said.append, lambda: now_s)
    for _ in range(3):
        notices.report("away", "the target is away")
        notices.report("error", "junk")
    assert said == ["the target is away", "junk"]
    now_s += NOTICE_EVERY_S
    notices.report("away", "still away")

    assert said == ["the target is away", "junk", "still away"]


def test_refused_operations_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One a line, as `tidings post --file` takes them; the file does not grow for ever."""
    assert sender.keep(tmp_path, [b"a", b"b"])
    assert sender.keep(tmp_path, [b"c"])
    monkeypatch.setattr(sender, "REFUSED_BYTES_MAX", 6)
    assert not sender.keep(tmp_path, [b"d"])

    assert (tmp_path / sender.REFUSED).read_bytes() == b"a\nb\nc\n"


def test_where_the_queue_is_by_default() -> None:
    """It is the folder for a user's own persistent files; a relative path in the variable is
    ignored."""
    home = Path("/home/ann")

    assert default_folder(home, "") == Path("/home/ann/.local/state/tidings/agent")
    assert default_folder(home, "/var/lib") == Path("/var/lib/tidings/agent")
    assert default_folder(home, "state") == default_folder(home, "")
