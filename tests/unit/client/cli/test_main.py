"""The command line: its output, exit codes, interruptions and signals."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import random
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest
from click.exceptions import Exit
from click.testing import CliRunner
from rich.table import Table

from tests.compat.oplog.wire import until
from tests.contract.answering import Answer, Answering, answering
from tests.unit.client.command import TIDINGS, WITHIN_S, tidings
from tests.unit.client.fake_feed import Running, event_id
from tidings.client.cli import render
from tidings.client.cli.lines import Columns, line_of, plain
from tidings.client.cli.main import main
from tidings.client.events import Event
from tidings.pipelines.templates import render_file
from tidings.server.running import Server


@contextmanager
def _started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [*TIDINGS, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _lines(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline() for _ in range(count)]


def _video(number: int) -> dict[str, object]:
    return {"event": "insert", "type": "video", "id": f"x{number}", "parents": ["channel/7"]}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    """Each shell gets a script that asks `tidings` back."""
    shown = CliRunner().invoke(main, ["completion", shell])

    assert shown.exit_code == 0
    assert "_TIDINGS_COMPLETE" in shown.stdout


def test_post_one(server: Running) -> None:
    """The operation is appended as given; its id is printed."""
    found = tidings(
        *("post", "--url", server.url, "insert", "video", "x32", "--parent", "a", "--parent", "b"),
        *("--timestamp", "2026-11-20T17:19:10Z", "--data", '{"size":3}'),
    )

    assert found.stdout == f"insert video/x32  {event_id(1)}\n"
    assert server.feed.pages == [
        [
            {
                "event": "insert",
                "type": "video",
                "id": "x32",
                "parents": ["a", "b"],
                "timestamp": "2026-11-20T17:19:10Z",
                "data": {"size": 3},
            }
        ]
    ]


def test_post_prints_ids_as_json(server: Running) -> None:
    """`--json` prints one object with the ids of the appended operations."""
    found = tidings("post", "--url", server.url, "--feed", "f", "--json", "delete", "video", "x32")

    assert json.loads(found.stdout) == {"ids": [event_id(1)]}
    assert server.feed.requests[0]["path"] == "/feeds/f/ops"


def test_post_many_from_a_pipe(server: Running) -> None:
    """NDJSON from stdin, in its order, in batches of 500."""
    lines = "\n".join(json.dumps(_video(number)) for number in range(1201))
    found = tidings("post", "--url", server.url, "-", stdin=lines)

    assert found.stdout == "posted 1,201 operations\n"
    assert [len(page) for page in server.feed.pages] == [500, 500, 201]
    assert [op["id"] for page in server.feed.pages for op in page] == [
        f"x{number}" for number in range(1201)
    ]


def test_post_many_from_a_file(server: Running, tmp_path: Path) -> None:
    """`--file` with `--json` prints the ids of each batch."""
    file = tmp_path / "operations.ndjson"
    file.write_text("".join(json.dumps(_video(number)) + "\n" for number in range(3)))
    found = tidings("post", "--url", server.url, "--file", str(file), "--json")

    assert json.loads(found.stdout) == {"ids": [event_id(1, slot) for slot in range(3)]}


def test_a_refused_line_is_named_by_its_place_in_the_input(server: Running) -> None:
    """Blank lines and earlier batches count; the message has the number of operations posted
    before."""
    good = json.dumps(_video(1))
    lines = "\n".join([*[good] * 500, "", good, '{"event":"explode"}'])
    found = tidings("post", "--url", server.url, "-", stdin=lines)

    assert found.returncode == 1
    assert "line 503: event: must be one of" in found.stderr
    assert "(500 operations before this batch were posted)" in found.stderr


def test_post_waits_out_an_outage(server: Running) -> None:
    """Retries are reported on stderr; the operation is appended once."""
    server.feed.faults.posts = ["503"]
    found = tidings("post", "--url", server.url, "insert", "video", "x1")

    assert found.returncode == 0
    assert "not now; trying again in" in found.stderr
    assert len(server.feed.pages) == 1


@pytest.mark.parametrize("transport", ["ws", "sse"])
def test_tail_for_a_person(server: Running, transport: str) -> None:
    """It prints one line per event, and remarks on stderr; --count ends it."""
    server.append(_video(1))
    found = tidings(
        *("tail", "--url", server.url, "--from", "0", "--count", "1", "--transport", transport)
    )

    assert found.returncode == 0
    assert found.stdout == "2026-11-20T17:19:10.94Z insert video/x1\n"
    assert found.stderr == "** reset: the current state follows, then changes  1\n"


def test_tail_for_a_program(server: Running) -> None:
    """`--json`: one object a line with id, event and data."""
    server.append(_video(1))
    found = tidings("tail", "--url", server.url, "--from", event_id(0), "--count", "1", "--json")

    assert json.loads(found.stdout) == {
        "id": event_id(1),
        "event": "insert",
        "data": {
            "timestamp": "2026-11-20T17:19:10.94Z",
            "parents": ["channel/7"],
            "type": "video",
            "id": "x1",
        },
    }


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_keeps_the_last_cursor(
    server: Running, tmp_path: Path, kind: signal.Signals
) -> None:
    """The exit code is 0, the state file has the last printed id, and the next run resumes from
    it."""
    state = tmp_path / "seen"
    arguments = ("tail", "--url", server.url, "--from", event_id(0), "--state-file", str(state))
    server.append(_video(1), _video(2))
    with _started(*arguments) as process:
        assert "video/x2" in _lines(process, 2)[1]
        process.send_signal(kind)
        assert process.wait(WITHIN_S) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert state.read_text() == event_id(1, 1)

    server.append(_video(3))
    again = tidings(*arguments, "--count", "1")
    assert "video/x3" in again.stdout
    assert state.read_text() == event_id(2)


def test_tail_comes_back_by_itself(server: Running) -> None:
    """A disconnect is reported on stderr only; stdout continues without a gap."""
    server.append(_video(1))
    with _started("tail", "--url", server.url, "--from", event_id(0), "--json") as process:
        _lines(process, 1)
        server.cut()
        server.append(_video(2))
        assert json.loads(_lines(process, 1)[0])["id"] == event_id(2)
        assert process.stderr is not None
        assert "trying again in" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(WITHIN_S) == 0


def test_ctrl_c_while_waiting_for_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a server it says so and waits, and names what gave the address; Ctrl-C ends it."""
    monkeypatch.setenv("TIDINGS_URL", "http://127.0.0.1:9")
    with _started("tail") as process:
        assert process.stderr is not None
        assert "(address from TIDINGS_URL); trying again in" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(WITHIN_S) == 0


def test_an_idle_tail_keeps_its_moved_cursor(server: Running, tmp_path: Path) -> None:
    """P8.4: where nothing matches, the state file follows the feed all the same."""
    state = tmp_path / "seen"
    with _started(
        *("tail", "--url", server.url, "--types", "rare", "--state-file", str(state))
    ) as process:
        until(lambda: server.feed.messages)
        server.append(_video(1))
        until(state.exists)
        process.send_signal(signal.SIGINT)
        assert process.wait(WITHIN_S) == 0
    assert state.read_text().strip() >= event_id(0)


def test_a_reader_that_goes_away(server: Running, tmp_path: Path) -> None:
    """`tidings tail | head -1` ends without a traceback."""
    server.append(*[_video(number) for number in range(100)])
    with _started("tail", "--url", server.url, "--from", "0") as process:
        _lines(process, 1)
        assert process.stdout is not None
        process.stdout.close()
        server.append(_video(100))
        server.append(_video(101))
        assert process.wait(WITHIN_S) == 0
        assert process.stderr is not None
        assert all(line.startswith("** ") for line in process.stderr)


def test_a_refused_tail_fails(server: Running) -> None:
    """Exit code 1 and one sentence."""
    found = tidings("tail", "--url", server.url, "--feed", "nowhere")

    assert found.returncode == 1
    assert found.stderr == "Error: refused (unknown_feed): no such feed here\n"


def test_a_file_that_holds_no_cursor(server: Running, tmp_path: Path) -> None:
    """Exit code 1; the file is left alone."""
    (tmp_path / "seen").write_text("dear diary")
    found = tidings("tail", "--url", server.url, "--state-file", str(tmp_path / "seen"))

    assert found.returncode == 1
    assert "does not hold a cursor" in found.stderr
    assert (tmp_path / "seen").read_text() == "dear diary"


def test_hostile_text_cannot_command_the_terminal() -> None:
    """Posted text is shown escaped: no control character, no change of direction."""
    data = {"type": "a\x1b]0;owned\x07", "id": "b\nc\u202e\x9b\ud800", "parents": ["\r"]}
    event = Event("\x1b", "insert\x1b", data)
    coloured = re.sub(r"\x1b\[\d*m", "", Columns()(event))  # our own colours
    fields = line_of(as_json=False, template=None, fields=["parents", "cursor", "nothing"])

    assert "\\x1b]0;owned\\x07/b\\nc\\u202e\\x9b\\ud800" in plain(event)
    assert plain(event).isprintable() and coloured.isprintable()
    assert fields(event) == "\\r\t\\x1b\t"
    assert render.machine(Event("1", "insert", data)).isascii()


def test_brackets_in_a_table_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    """Names and errors from elsewhere are shown unchanged, and never fail the command."""
    render.show(render.table(("worker", "error"), [{"worker": "[red]a", "error": "[/b] c"}]))

    printed = capsys.readouterr().out
    assert "[red]a" in printed and "[/b] c" in printed


NOWHERE = "http://127.0.0.1:1"
NAME = "a-consumer-with-a-name-of-more-than-forty-characters"
POSITION = "6923a3e70000000007000000"
CONSUMER: dict[str, Any] = {
    "name": NAME,
    "state": "working",
    "position": POSITION,
    "lag_pages": 1234567,
    "lag_ms": 1_089_637,
    "parked": 0,
    "worker": "host-1.example.org-4711-a1b2c3d4",
}
OTHER = {**CONSUMER, "name": "b", "lag_pages": 7, "lag_ms": 1}
COLOUR = re.compile(r"\x1b\[[\d;]*m")


@pytest.fixture
def listing() -> Iterator[Answering]:
    with answering(Answer(200, {"consumers": [CONSUMER, OTHER]})) as server:
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

    assert [re.split("  +", line) for line in shown] == [
        ["name", "state", "position", "lag_pages", "lag", "parked", "worker"],
        [NAME, "working", POSITION, "1,234,567", "18 min 9 s", "0", CONSUMER["worker"]],
        ["b", "working", POSITION, "7", "1 ms", "0", CONSUMER["worker"]],
    ]
    assert shown[1].index("1,234,567") + 8 == shown[2].index("7 ") > 0
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


AT_NOWHERE = ("--url", "http://127.0.0.1:1")
TIMES = 3  # of each command and signal, at other moments
LONGEST_S = 0.5  # of the imports of a command on a machine that is not busy
FILE = "pipeline.py"


def catches(process: subprocess.Popen[str], number: int) -> bool:
    """Return True if the process has a handler of the signal; Python has none of SIGTERM."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    (caught,) = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")]
    return bool(int(caught, 16) >> (number - 1) & 1)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "words",
    [
        ("pipeline", "run", FILE, "--json"),
        ("serve", "--data", "served", "--port", "0"),
        ("tail", *AT_NOWHERE),
        ("status", *AT_NOWHERE),
        ("sync", "table", "host=/nowhere", "t", *AT_NOWHERE),
    ],
    ids=" ".join,
)
def test_a_signal_at_any_moment(words: Sequence[str], number: int, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(render_file("p", AT_NOWHERE[1], "main", (), ("ndjson", "parquet")))
    chance = random.Random(f"{words}{number}")
    for _ in range(TIMES):
        with subprocess.Popen(
            [sys.executable, "-m", "tidings", *words],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            while not catches(process, signal.SIGTERM):
                assert process.poll() is None
            time.sleep(chance.random() * LONGEST_S)
            process.send_signal(number)
            _, error = process.communicate(timeout=WITHIN_S)
        assert "Traceback" not in error and "KeyboardInterrupt" not in error, error
        assert process.returncode in (0, 1, 128 + number, -number), error
