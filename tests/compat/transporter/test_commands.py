"""The commands of an operator, and the worker of a shell."""

from __future__ import annotations

import json
import signal
import subprocess
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.compat.oplog.wire import until
from tests.compat.transporter.pipe import Pipe, Store
from tests.unit.client.command import TIDINGS
from tidings.client.cli.main import main

WHY = ("--why", "a test", "--by", "ann")


def run(pipe: Pipe, *arguments: str) -> Result:
    where = ("--url", pipe.url, "--feed", pipe.feed)
    return CliRunner().invoke(main, [*arguments, *where], catch_exceptions=False)


def said(pipe: Pipe, *arguments: str) -> str:
    done = run(pipe, *arguments)
    assert done.exit_code == 0, done.output
    return done.stdout.strip()


def due(pipe: Pipe, name: str, count: int) -> list[int]:
    """Return the next messages that a worker is sent."""
    store = Store()
    with pipe.working(name, store.write):
        until(lambda: len(store.written) >= count)
    return store.written


def test_T33_oldest_and_current(pipe: Pipe) -> None:
    """-1 for an empty log."""
    assert (said(pipe, "log", "oldest"), said(pipe, "log", "current")) == ("-1", "-1")
    pipe.post("aba")
    assert said(pipe, "log", "oldest") == pipe.ids[0]
    assert said(pipe, "log", "current") == pipe.ids[2]
    end = said(pipe, "log", "end")
    assert (end[:18], json.loads(said(pipe, "log", "end", "--json"))) == (
        pipe.ids[2][:18],
        {"end": end},
    )


def test_T32_messages_from_x_to_y(pipe: Pipe) -> None:
    """One, a stretch, or to the end: offset, time, op, key and value of each."""
    pipe.post("abcd")
    lines = said(pipe, "log", "show", pipe.ids[1]).splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "offset    ",
        "timestamp ",
        "op        ",
        "key       ",
        "value     ",
    ]
    assert lines[0].endswith(pipe.ids[1])
    assert lines[2:4] == ["op        : INSERT", "key       : b/1"]
    for stretch, wanted in (("1..2", "bc"), ("1..", "bcd"), ("3..3", "d")):
        first, _, last = stretch.partition("..")
        asked = f"{pipe.ids[int(first)]}..{pipe.ids[int(last)] if last else ''}"
        found = said(pipe, "log", "show", asked, "--json").splitlines()
        assert "".join(json.loads(line)["data"]["type"] for line in found) == wanted
    missing = run(pipe, "log", "show", "0" * 24)
    assert (missing.exit_code, "is not in the log" in missing.stderr) == (1, True)
    wrong = run(pipe, "log", "show", "yesterday")
    assert (wrong.exit_code, "must be the id of one operation" in wrong.stderr) == (1, True)


def test_T32_more_messages_than_one_answer_holds(pipe: Pipe) -> None:
    """They are asked for in parts, and none comes twice."""
    for _ in range(3):
        pipe.post("a" * 700)
    found = said(pipe, "log", "show", f"{pipe.ids[0]}..", "--json").splitlines()
    assert [json.loads(line)["id"] for line in found] == pipe.ids


def test_T34_consumers_and_where_they_stand(pipe: Pipe) -> None:
    """As a table, one by one, and as JSON."""
    assert said(pipe, "consumers", "list") == "no named consumers"
    assert said(pipe, "consumers", "create", "search", "--types", "a,b", "--ids", "x*").endswith(
        "is at none"
    )
    pipe.post("ab")
    pipe.ack("search", through=0)
    table = said(pipe, "consumers", "list")
    assert "search" in table
    assert "lag_pages" in table
    (found,) = json.loads(said(pipe, "consumers", "list", "--json"))
    assert (found["name"], found["types"]) == ("search", ["a", "b"])
    shown = said(pipe, "consumers", "show", "search").splitlines()
    assert shown[0] == f"{'name':<15} search"
    assert f"{'types':<15} a, b" in shown
    assert f"{'ids':<15} x*" in shown
    assert json.loads(said(pipe, "consumers", "show", "search", "--json"))["notes"] == []
    gone = run(pipe, "consumers", "show", "serach")
    assert (gone.exit_code, "no such consumer" in gone.stderr) == (1, True)


def test_T35_forward_without_sending(pipe: Pipe) -> None:
    """By a mark, by a step, or parked; author, time and reason are recorded."""
    pipe.register("search")
    pipe.post("a" * 6)
    assert pipe.ids[1] in said(pipe, "consumers", "mark", "search", pipe.ids[1], *WHY)
    assert "key       : a/2" in said(pipe, "consumers", "step", "search", *WHY)
    assert "key       : a/3" in said(pipe, "consumers", "park", "search", *WHY)
    assert due(pipe, "search", 2) == [4, 5]
    shown = said(pipe, "consumers", "show", "search")
    for note in ("park", "step", "mark"):
        assert f"{note} " in shown
    assert "by ann: a test" in shown
    assert said(pipe, "consumers", "retry", "search", "all", *WHY) == "1 to be sent again"
    assert said(pipe, "consumers", "drop", "search", "all", *WHY) == "0 left"


def test_T36_back_forgets_nothing(pipe: Pipe) -> None:
    """Every type comes again."""
    pipe.register("search")
    pipe.post("abcabc")
    pipe.ack("search", through=5)
    said(pipe, "consumers", "mark", "search", pipe.ids[2], *WHY)
    assert due(pipe, "search", 3) == [3, 4, 5]
    assert said(pipe, "consumers", "mark", "search", "oldest", *WHY) == "search is at none"
    assert due(pipe, "search", 6) == [0, 1, 2, 3, 4, 5]


def test_T37_deleted(pipe: Pipe) -> None:
    """Made again it begins with the oldest message; one that is not there is not deleted."""
    pipe.register("search")
    pipe.post("aa")
    pipe.ack("search", through=1)
    assert said(pipe, "consumers", "delete", "search", *WHY) == "search is deleted"
    assert run(pipe, "consumers", "delete", "search", *WHY).exit_code == 1
    said(pipe, "consumers", "create", "search")
    assert due(pipe, "search", 2) == [0, 1]


@pytest.mark.parametrize(
    "command",
    [["step"], ["park"], ["resume"], ["mark", "oldest"], ["retry", "all"], ["drop", "all"]],
    ids=lambda command: command[0],
)
def test_never_ok_when_nothing_was_done(pipe: Pipe, command: list[str]) -> None:
    """Exit code 1 and why; and without --why a wrong usage."""
    pipe.register("search")
    done = run(pipe, "consumers", command[0], "search", *command[1:], *WHY)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "nothing_done" in done.stderr
    unsaid = run(pipe, "consumers", command[0], "search", *command[1:])
    assert (unsaid.exit_code, "--why" in unsaid.stderr) == (2, True)


def test_paused(pipe: Pipe) -> None:
    """And resumed."""
    pipe.register("search")
    assert said(pipe, "consumers", "pause", "search", *WHY) == "search is paused"
    assert said(pipe, "consumers", "resume", "search", *WHY) == "search is idle"


def consume(pipe: Pipe, *arguments: str) -> list[str]:
    where = ("--url", pipe.url, "--feed", pipe.feed, "--worker", "w", "--sse")
    return [*TIDINGS, "consume", "search", *where, *arguments]


def test_consume_prints_until_it_is_stopped(pipe: Pipe) -> None:
    """Printed messages are acknowledged; the exit code is 0."""
    pipe.register("search")
    pipe.post("ab")
    with subprocess.Popen(consume(pipe), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert [(each["id"], each["event"], each["data"]["type"]) for each in found] == [
        (pipe.ids[0], "insert", "a"),
        (pipe.ids[1], "insert", "b"),
    ]
    assert pipe.position("search") == 1


def test_a_command_that_refuses_a_batch_ends_it(pipe: Pipe, tmp_path: Path) -> None:
    """Started again what it refused comes one by one, and the one it cannot take is named."""
    pipe.register("search")
    pipe.post("aaab")
    program = tmp_path / "index"
    program.write_text(f"#!/bin/sh\ncat > {tmp_path}/batch\n! grep -q '\"b\"' {tmp_path}/batch\n")
    program.chmod(0o755)
    once = subprocess.run(
        consume(pipe, "--", str(program)), capture_output=True, text=True, timeout=60
    )
    assert (once.returncode, once.stderr) == (1, f"Error: {program} ended with 1\n")
    assert pipe.position("search") is None
    subprocess.run(consume(pipe, "--", str(program)), capture_output=True, timeout=60)
    assert pipe.position("search") == 2
    assert pipe.api.show("search")["failure"]["id"] == pipe.ids[3]


def more_than(file: Path, lines: int) -> bool:
    return len(file.read_text().splitlines()) > lines


def test_T25_killed_at_any_time_nothing_is_lost(pipe: Pipe, tmp_path: Path) -> None:
    """SIGKILL again and again: every message was written, few of them twice."""
    pipe.register("search")
    for _ in range(6):
        pipe.post("a" * 50)
    file = tmp_path / "written"
    file.touch()
    for kills in range(1, 5):
        with subprocess.Popen(
            consume(pipe, "--bulk", "5", "--", "tee", "-a", str(file)), stdout=subprocess.DEVNULL
        ) as process:
            until(partial(more_than, file, kills * 20))
            process.kill()
    rest = Store()
    with pipe.working("search", rest.write):
        until(lambda: pipe.position("search") == 299)
    before = [int(json.loads(line)["data"]["id"]) for line in file.read_text().splitlines()]
    written = before + rest.written
    assert set(written) == set(range(300))
    assert len(written) <= 300 + 4 * 5
    first = list(dict.fromkeys(written))
    assert first == sorted(first)
