"""`tidings tail`: the part of the log that it shows, and its lines, with a real server."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from tests.unit.client.cli.test_main import on_a_terminal
from tidings.client.cli.main import main
from tidings.client.poster import Poster
from tidings.server.running import Server

_COLOURS = re.compile(r"\x1b\[\d*m")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server with five pages: the objects 1 to 4, and 1 again a second later."""
    with Server() as running, Poster(running.url) as poster:
        for number in (1, 2, 3, 4):
            poster.post([_video(number)])
        time.sleep(1.1)
        poster.post([{**_video(1), "event": "update", "parents": ["user/ann"]}])
        yield running


def _video(number: int) -> dict[str, object]:
    kind = "video" if number % 2 else "film"
    data = {"n": number, "text": "\u6d77" * 90}
    return {"event": "insert", "type": kind, "id": f"x{number}", "data": data}


def tail(server: Server, *words: str) -> Result:
    return CliRunner().invoke(main, ["tail", "--url", server.url, *words])


def shown(server: Server, *words: str) -> list[str]:
    found = tail(server, "--format", "{event} {id}", *words)
    assert found.exit_code == 0, found.stderr
    return found.stdout.splitlines()


ALL = ["insert x1", "insert x2", "insert x3", "insert x4", "update x1"]


@pytest.mark.parametrize("transport", ["ws", "sse"])
def test_the_log_from_a_time(server: Server, transport: str) -> None:
    over = ("--transport", transport)
    assert shown(server, "--from", "oldest", "--count", "5", *over) == ALL
    assert shown(server, "--from", "1h", "--count", "5", *over) == ALL


def test_the_log_between_times(server: Server) -> None:
    """A past end needs no further events; the last page has a later second than the others."""
    cursor = tail(server, "--from", "oldest", "--count", "5", "--fields", "cursor").stdout.split()
    last = time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(int(cursor[-1][:8], 16) - 3600))
    middle = time.strftime("%Y-%m-%d %H:%M:%S+00:00", time.gmtime(int(cursor[-1][:8], 16)))

    assert shown(server, "--from", "1h", "--until", middle) == ALL[:4]
    assert shown(server, "--from", middle, "--until", "0s") == ALL[4:]
    assert shown(server, "--from", cursor[1], "--until", "0s") == ALL[2:]
    assert shown(server, "--from", "oldest", "--until", last) == []
    assert shown(server, "-n", "2", "--until", middle) == ALL[2:4]
    assert shown(server, "--from", "1h", "--until", "0s", "--types", "film") == [ALL[1], ALL[3]]


def test_the_last_operations(server: Server) -> None:
    assert shown(server, "-n", "2", "--count", "2") == ALL[3:]
    assert shown(server, "-n", "2", "--types", "video", "--count", "2") == [ALL[2], ALL[4]]
    assert shown(server, "-n", "99", "--count", "5") == ALL


def test_fields_and_grep(server: Server) -> None:
    words = ("--from", "oldest", "--until", "0s")

    found = tail(server, *words, "--fields", "object,data.n,parents,nothing", "--grep", "x1 .*n.:1")
    assert found.stdout == "video/x1\t1\t\t\nvideo/x1\t1\tuser/ann\t\n"
    assert shown(server, *words, "--count", "1", "--grep", "film") == [ALL[1]]


def test_count_ends_after_a_smaller_copy(server: Server) -> None:
    found = tail(server, "--from", "0", "--count", "9")

    assert len(found.stdout.splitlines()) == 4
    assert "** live: the current state has 4 objects, so --count ends here" in found.stderr


def test_lines_fit_a_terminal_and_are_whole_in_a_pipe(server: Server) -> None:
    """Wide characters take two cells."""
    words = ("tail", "--url", server.url, "--from", "oldest", "--count", "2")
    lines = _COLOURS.sub("", on_a_terminal(*words)).splitlines()

    assert [line[22:50] for line in lines] == [
        'insert  video/x1  {"n":1,"te',
        'insert  film/x2   {"n":2,"te',
    ]
    assert all(line.endswith("\u2026") and len(line) < 80 for line in lines)
    assert "\u6d77" * 90 in tail(server, *words[3:]).stdout


@pytest.mark.parametrize(
    "words",
    [
        ("--from", "2026-11-28T21:00"),
        ("--from", "1hour"),
        ("--until", "yesterday"),
        ("--until", "1h"),
        ("--until", "1h", "--from", "0"),
        ("-n", "2", "--from", "1h"),
        ("--json", "--fields", "id"),
        ("--grep", "("),
    ],
)
def test_wrong_usage(server: Server, words: tuple[str, ...]) -> None:
    assert tail(server, *words).exit_code == 2
