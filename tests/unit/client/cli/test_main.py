"""The command line: its output and exit codes; commands with effects run as a process."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.compat.oplog.wire import until
from tests.unit.client.command import TIDINGS, WITHIN_S, tidings
from tests.unit.client.fake_feed import Running
from tests.unit.client.fake_log import event_id
from tidings.client.cli import render
from tidings.client.cli.main import main
from tidings.client.events import Event


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


def test_help_imports_no_transport() -> None:
    """`tidings --help` and completion stay fast: they import only the modules they need."""
    code = (
        "import sys; from tidings.client.cli.main import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print([m for m in ('httpx','websockets','rich','boto3','asyncio') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert shown.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("arguments", [[], ["--port", "1", "what"]])
def test_a_missing_extra(arguments: Sequence[str]) -> None:
    """`tidings serve` without its packages: one sentence says what to install; exit code 1."""
    code = (
        "import sys; from tidings.client.cli import main as cli\n"
        f"cli.PACKAGES['serve'] = ('no_such_package',); cli.main(['serve', *{arguments!r}])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )

    assert found.returncode == 1
    assert found.stdout == ""
    assert found.stderr == (
        "Error: `tidings serve` needs no_such_package, not installed here;"
        " install the extra in a checkout of Tidings: pip install '.[serve]'\n"
    )


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
    """It prints one line per event; reset and live are highlighted; --count ends it."""
    server.append(_video(1))
    found = tidings(
        *("tail", "--url", server.url, "--from", "0", "--count", "1", "--transport", transport)
    )

    assert found.returncode == 0
    assert found.stdout.splitlines() == [
        "** reset  1",
        "2026-11-20 17:19:10Z  insert  video/x1  [channel/7]  000000000000000001800000",
    ]


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


def test_ctrl_c_while_waiting_for_a_server(tmp_path: Path) -> None:
    """Without a server it says so and waits; Ctrl-C ends it with 0."""
    with _started("tail", "--url", "http://127.0.0.1:9") as process:
        assert process.stderr is not None
        assert "trying again in" in process.stderr.readline()
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
        assert process.stderr.read() == ""


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
    shown = render.human(Event("\x1b", "insert\x1b", data))
    text = re.sub(r"\x1b\[\d*m", "", shown)  # our own colours

    assert "\\x1b]0;owned\\x07/b\\nc\\u202e\\x9b\\ud800" in text
    assert text.isprintable()
    assert render.machine(Event("1", "insert", data)).isascii()


def test_brackets_in_a_table_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    """Names and errors from elsewhere are shown unchanged, and never fail the command."""
    render.show(render.table(("worker", "error"), [{"worker": "[red]a", "error": "[/b] c"}]))

    printed = capsys.readouterr().out
    assert "[red]a" in printed and "[/b] c" in printed
