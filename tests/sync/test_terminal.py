"""`tidings sync` as a person runs it: on a terminal, against a stage, without Java."""

from __future__ import annotations

import gzip
import json
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

import pytest
from click.testing import CliRunner
from tidings.client.cli import main
from tidings.local.running import Twin

from tests.operate.cloudformation import describing
from tests.pipeline.feeds import FEEDS, told
from tests.pipeline.lines import line, written

pytestmark = pytest.mark.java
COMMAND = [sys.executable, "-m", "tidings.client.cli", "sync"]
PHASES = [
    "finding the dump",
    "starting Spark",
    "waiting for the state",
    "reading the dump",
    "reading the state",
    "comparing",
    "writing the plan",
    "applying",
]


def on_terminal(
    command: list[str], environment: dict[str, str], stdin: IO[bytes] | None = None
) -> tuple[int, str, str]:
    """Exit code, what went to stdout, and what a person saw."""
    ours, theirs = pty.openpty()
    seen: list[bytes] = []

    def watch() -> None:
        try:
            while part := os.read(ours, 4096):
                seen.append(part)
        except OSError:  # how a terminal ends
            return

    with subprocess.Popen(
        command, env=environment, stdin=stdin, stdout=subprocess.PIPE, stderr=theirs, text=True
    ) as process:
        os.close(theirs)
        watcher = threading.Thread(target=watch)
        watcher.start()
        said, _ = process.communicate()
        watcher.join()
    os.close(ours)
    return process.returncode, said, b"".join(seen).decode()


def test_a_stage_and_its_phases_on_a_terminal(twin: Twin, feed: str, tmp_path: Path) -> None:
    """A stage is found by the outputs of its stack, and every phase is shown."""
    outputs = {
        "LogTable": "tidings-local-log",
        "StateTable": "tidings-local-state",
        "ControlTable": "tidings-local-control",
        "Feeds": ",".join(FEEDS),
        "RetentionHours": "24",
    }
    dump = written(tmp_path / "dump", [line("a", 1), line("b", 1)])
    command = [*COMMAND, dump, "--stage", "dev", "--expect", "2"]
    with describing("tidings-dev", outputs) as endpoint:
        environment = os.environ | {
            "AWS_ENDPOINT_URL_CLOUDFORMATION": endpoint,
            "AWS_ENDPOINT_URL_DYNAMODB": twin.dynamodb_url,
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
            "AWS_DEFAULT_REGION": "us-east-1",
            "TERM": "xterm",
        }
        code, said, seen = on_terminal([*command, "--feed", feed], environment)
        refused = subprocess.run(
            [*command, "--feed", "none"], env=environment, capture_output=True, text=True
        )

    assert (code, "applied 2" in said) == (0, True), seen
    shown = [seen.find(phase) for phase in PHASES]
    assert -1 not in shown
    assert shown == sorted(shown)
    assert sorted(operation.id for _, operation in told(twin, feed)) == ["a", "b"]
    assert (refused.returncode, refused.stderr) == (1, "Error: feed: no such feed here\n")


def test_O69_stdin_and_nothing_else(twin: Twin, tmp_path: Path, feed: str) -> None:
    """A gzipped dump through a pipe; with --json not even a terminal sees more than the summary."""
    dump = tmp_path / "dump"
    dump.write_bytes(gzip.compress(line("a", 1) + b'\n{"tidings":"end","lines":1}\n'))
    where = ["--feed", feed, "--endpoint-url", twin.dynamodb_url]
    with dump.open("rb") as piped:
        environment = os.environ | {"TERM": "xterm"}
        code, said, seen = on_terminal([*COMMAND, "-", *where, "--json"], environment, piped)

    assert (code, json.loads(said)["applied"], seen) == (0, 1, "")
    assert [(event, operation.id) for event, operation in told(twin, feed)] == [("insert", "a")]
    for arguments in ([], ["one", "two"]):
        assert CliRunner().invoke(main, ["sync", *arguments, *where]).exit_code == 2
    assert CliRunner().invoke(main, ["sync", "one"]).exit_code == 2


def test_without_java(twin: Twin, feed: str, tmp_path: Path) -> None:
    """One sentence says what is missing, before anything is waited for."""
    (tmp_path / "bin").mkdir()
    dump = written(tmp_path / "dump", [line("a", 1)])
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    done = subprocess.run(
        [*COMMAND, dump, "--feed", feed, "--endpoint-url", twin.dynamodb_url],
        env=environment | {"PATH": str(tmp_path / "bin")},
        capture_output=True,
        text=True,
    )
    sentence = "Error: Spark needs Java 17 or newer, and there is no java here\n"
    assert (done.returncode, done.stderr, done.stdout) == (1, sentence, "")


def test_the_help_shows_how() -> None:
    """Examples of what people do, and what the exit codes mean."""
    for words, wanted in (
        (["--help"], ["tidings sync videos.json.gz --stage dev --dry-run", "3 stopped by a guard"]),
        (["approve", "--help"], ["sync approve [OPTIONS] ID"]),
        (["reject", "--help"], ["Give up the plan"]),
    ):
        done = subprocess.run([*COMMAND, *words], capture_output=True, text=True)
        assert done.returncode == 0
        assert [each for each in wanted if each not in done.stdout] == []
