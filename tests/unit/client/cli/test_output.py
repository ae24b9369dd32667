"""What all commands have in common: colours, tables, pipes, interruptions and time limits."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import pytest
from click.exceptions import Exit
from rich.table import Table

from tests.contract.answering import Answer, Answering, answering
from tests.unit.client.command import TIDINGS, WITHIN_S, tidings
from tests.unit.client.fake_feed import Running
from tidings.client.cli import render
from tidings.client.cli.main import main
from tidings.server.running import Server

NOWHERE = "http://127.0.0.1:1"
NAME = "a-consumer-with-a-name-of-more-than-forty-characters"
POSITION = "6923a3e70000000007000000"
CONSUMER: dict[str, Any] = {
    "name": NAME,
    "state": "working",
    "position": POSITION,
    "lag_pages": 1234567,
    "lag_ms": 1,
    "parked": 0,
    "worker": "host-1.example.org-4711-a1b2c3d4",
}
COLOUR = re.compile(r"\x1b\[[\d;]*m")


@pytest.fixture
def listing() -> Iterator[Answering]:
    with answering(Answer(200, {"consumers": [CONSUMER, {**CONSUMER, "name": "b"}]})) as server:
        yield server


def on_a_terminal(*words: str, columns: int = 80, **environment: str) -> str:
    """Return the output of a command on a terminal of *columns* columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns), **environment}
    with subprocess.Popen([*TIDINGS, *words], stdin=theirs, stdout=theirs, env=env) as process:
        os.close(theirs)
        output = b""
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not chunk:
                break
            output += chunk
        process.wait(WITHIN_S)
    os.close(ours)
    return output.decode().replace("\r\n", "\n")


def test_a_table_in_a_pipe_is_plain_and_complete(listing: Answering) -> None:
    """No lines, no colours, no truncation: one line for each row, for `awk` and `grep`."""
    shown = tidings("consumers", "list", "--url", listing.url).stdout.splitlines()

    assert [line.split() for line in shown] == [
        ["name", "state", "position", "lag_pages", "lag_ms", "parked", "worker"],
        [NAME, "working", POSITION, "1,234,567", "1", "0", CONSUMER["worker"]],
        ["b", "working", POSITION, "1,234,567", "1", "0", CONSUMER["worker"]],
    ]
    assert shown[1].index("working") == shown[2].index("working")
    assert all(line == line.rstrip() and line.isascii() for line in shown)


def test_a_table_on_a_terminal_breaks_no_words(listing: Answering) -> None:
    """If the row does not fit, each cell has a line of its own."""
    words = ("consumers", "list", "--url", listing.url)
    narrow, wide = on_a_terminal(*words), on_a_terminal(*words, columns=250)

    for shown in (narrow, wide):
        assert shown.count(POSITION) == 2
        assert NAME in shown and CONSUMER["worker"] in shown
    assert max(map(len, narrow.splitlines())) <= 80
    assert "position   6923" in narrow
    assert "┃" in wide and "┃" not in narrow


def test_titles_and_captions_are_kept(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pipe, and on a terminal that is too narrow for the table."""
    table = Table("name", title="a title", caption="a caption")
    table.add_row("x" * 100)
    render.show(table)
    assert capsys.readouterr().out.splitlines() == ["a title", "name", "x" * 100, "a caption"]

    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    render.show(table)
    lines = capsys.readouterr().out.splitlines()
    assert (lines[0], lines[-1]) == ("a title", "a caption")
    assert "".join(lines[1:-1]).count("x") == 100


def test_no_color(server: Running) -> None:
    """`NO_COLOR` removes the colours of events and tables on a terminal."""
    server.append({"event": "insert", "type": "video", "id": "x1"})
    words = ("tail", "--url", server.url, "--from", "0", "--count", "1")

    assert COLOUR.search(on_a_terminal(*words))
    plain = on_a_terminal(*words, NO_COLOR="1")
    assert "video/x1" in plain
    assert not COLOUR.search(plain)
    assert COLOUR.search(on_a_terminal(*words, NO_COLOR=""))  # empty means unset (no-color.org)


def test_the_status_without_colours() -> None:
    """The word has a colour on a terminal, unless `NO_COLOR` is set."""
    with answering(Answer(200, {"status": "OK", "followers": []})) as server:
        words = ("status", "--url", server.url)
        assert "32m" in on_a_terminal(*words)
        assert "32m" not in on_a_terminal(*words, NO_COLOR="1")


def _interrupt(words: Sequence[str], server: Answering) -> subprocess.CompletedProcess[str]:
    """Interrupt a command during its first request."""
    with subprocess.Popen(
        [*TIDINGS, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        deadline_s = time.monotonic() + WITHIN_S
        while not server.asked:
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=WITHIN_S)
    return subprocess.CompletedProcess(words, process.returncode, out, err)


@pytest.fixture
def busy() -> Iterator[Answering]:
    """Yield a server that answers that it is busy, so that clients wait and try again."""
    with answering(Answer(503)) as server:
        yield server


@pytest.mark.parametrize("words", [("post", "insert", "a", "b"), ("erase", "a", "b", "--reason=r")])
def test_ctrl_c(words: Sequence[str], busy: Answering) -> None:
    """Exit code 130 as in shells, without a traceback."""
    found = _interrupt((*words, "--url", busy.url), busy)

    assert found.returncode == 130
    assert "Traceback" not in found.stderr and found.stdout == ""


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt, 130), (EOFError, 1)])
def test_ctrl_c_at_a_prompt(
    error: type[BaseException], code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is an interruption, too; the end of the input is a failure."""

    def prompt(*_: object, **__: object) -> str:
        try:
            raise error
        except error:
            raise click.Abort from None

    monkeypatch.setattr(click, "confirm", prompt)
    file = tmp_path / "pipeline.py"
    file.touch()
    context = main.make_context("tidings", ["pipeline", "init", "ndjson", "--file", str(file)])
    monkeypatch.setattr("sys.stdin", _Terminal())
    with context, pytest.raises((Exit, click.Abort)) as raised:
        main.invoke(context)

    assert getattr(raised.value, "exit_code", 1) == code


class _Terminal:
    def isatty(self) -> bool:
        return True


def test_a_closed_pipe(listing: Answering) -> None:
    """`tidings consumers list | head -0`: no traceback, no message."""
    read, write = os.pipe()
    os.close(read)
    for words in (("consumers", "list"), ("consumers", "list", "--json")):
        found = subprocess.run(
            [*TIDINGS, *words, "--url", listing.url],
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        assert (found.returncode, found.stderr) == (0, "")
    os.close(write)


def test_a_worker_with_a_closed_pipe() -> None:
    """`tidings consume NAME | head -0` acknowledges nothing, and reports no failure."""
    read, write = os.pipe()
    os.close(read)
    with Server() as host:
        at = ("--url", host.url)
        tidings("consumers", "create", "a", *at)
        tidings("post", "insert", "video", "x1", *at)
        found = subprocess.run(
            [*TIDINGS, "consume", "a", *at],
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        consumer = json.loads(tidings("consumers", "show", "a", "--json", *at).stdout)
    os.close(write)

    assert (found.returncode, found.stderr) == (0, "")
    assert (consumer["position"], consumer["state"]) == (None, "idle")


@pytest.mark.parametrize(
    "words",
    [
        ("post", "insert", "a", "b"),
        ("tail",),
        ("tail", "--transport", "sse"),
        ("consume", "a"),
        ("snoop", "-r", "vm", "-s", "nic"),
        ("erase", "a", "b", "--reason", "r"),
        ("feeds", "create", "a", "--update"),
        ("status",),
        ("consumers", "list"),
    ],
    ids=" ".join,
)
def test_timeout(words: Sequence[str]) -> None:
    """Without a server, commands that would try again give up, with exit code 1."""
    found = tidings(*words, "--timeout", "0.1", "--url", NOWHERE)

    assert found.returncode == 1
    assert found.stderr.startswith(("Error: http://127.0.0.1:1/", "Error: ws://127.0.0.1:1/"))
    assert found.stderr.count("\n") == 1


def test_the_timeout_of_an_answer() -> None:
    """A server that accepts the connection and does not answer."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        for words in (("consumers", "list"), ("status",), ("post", "insert", "a", "b")):
            found = tidings(*words, "--timeout", "0.2", "--url", url)

            assert found.returncode == 1
            assert "does not answer: timed out" in found.stderr


def test_a_missing_password_names_the_options() -> None:
    """The remedy works for every command; with a wrong password it is not shown."""
    error = {"code": "wrong_password", "message": "must be the read password"}
    remedy = "give it with --password-file, TIDINGS_PASSWORD or `tidings context set`"
    with answering(Answer(401, {"error": error})) as server:
        words = ("consumers", "list", "--url", server.url)

        assert remedy in tidings(*words).stderr
        assert remedy not in tidings(*words, "--password", "wrong").stderr


def test_the_default_address_is_named() -> None:
    """A user without an address in mind sees its source, and the ways to give it."""
    context = main.make_context("tidings", ["status"], resilient_parsing=True)
    context.meta[render.SOURCE] = render.DEFAULT_SOURCE
    with context:
        shown = render.source_of(is_unreachable=True)
        assert shown == " (default address; set --url, TIDINGS_URL or a context)"
        assert render.source_of(is_unreachable=False) == ""
