"""`tidings sync` as a person runs it: on a terminal, against a stage, without Java."""

from __future__ import annotations

import gzip
import os
import pty
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.twin import Twin
from tests.unit.admin.cloudformation import describing
from tests.unit.sync.feeds import FEEDS, log_operations
from tests.unit.sync.lines import line, written
from tidings.client.cli.main import main

COMMAND = [sys.executable, "-m", "tidings.client.cli.main", "sync"]
PHASES = [
    "finding the dump",
    "starting",
    "waiting for the state",
    "reading the dump",
    "reading the state",
    "comparing",
    "writing the plan",
    "applying",
]


@dataclass
class Terminal:
    """The terminal of one process, which ends with the block."""

    process: subprocess.Popen[str]
    _reader: Future[str]

    @property
    def seen(self) -> str:
        """Everything, once all that write here have ended."""
        return self._reader.result()


@contextmanager
def terminal(command: Sequence[str], **options: Any) -> Iterator[Terminal]:
    """*command* on a terminal of its own; *options* are those of `Popen`."""
    ours, theirs = pty.openpty()

    def read_all() -> str:
        seen = b""
        with suppress(OSError):  # how a terminal ends
            while part := os.read(ours, 4096):
                seen += part
        return seen.decode()

    with ThreadPoolExecutor(1) as threads:
        shown = {"env": os.environ | {"TERM": "xterm"}, "stdout": theirs, "stderr": theirs}
        given: dict[str, Any] = {"text": True} | shown | options
        with subprocess.Popen(command, **given) as process:
            os.close(theirs)
            yield Terminal(process, threads.submit(read_all))
    os.close(ours)


@pytest.mark.spark
def test_O69_a_pipe_a_stage_and_its_phases_on_a_terminal(
    twin: Twin, feed: str, tmp_path: Path
) -> None:
    """A gzipped dump through a pipe; the stage by its stack's outputs; every phase is shown."""
    outputs = {
        "LogTable": "tidings-local-log",
        "StateTable": "tidings-local-state",
        "ControlTable": "tidings-local-control",
        "Feeds": ",".join(FEEDS),
        "RetentionHours": "24",
    }
    dump = tmp_path / "dump"
    end = b'{"tidings":"end","lines":2}\n'
    dump.write_bytes(gzip.compress(b"\n".join((line("a", 1), line("b", 1), end))))
    command = [*COMMAND, "-", "--stage", "dev", "--expect", "2", "--engine", "spark"]
    with describing("tidings-dev", outputs) as endpoint, dump.open("rb") as piped:
        environment = os.environ | {
            "AWS_ENDPOINT_URL_CLOUDFORMATION": endpoint,
            "AWS_ENDPOINT_URL_DYNAMODB": twin.dynamodb_url,
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
            "AWS_DEFAULT_REGION": "us-east-1",
            "TERM": "xterm",
        }
        given = {"env": environment, "stdin": piped, "stdout": subprocess.PIPE}
        with terminal([*command, "--feed", feed], **given) as run:
            said, _ = run.process.communicate()
        refused = subprocess.run(
            [*command, "--feed", "none"], env=environment, capture_output=True, text=True
        )

    assert (run.process.returncode, "applied 2" in said) == (0, True), run.seen
    shown = [run.seen.find(phase) for phase in PHASES]
    assert -1 not in shown
    assert shown == sorted(shown)
    assert sorted(operation.id for _, operation in log_operations(twin, feed)) == ["a", "b"]
    assert (refused.returncode, refused.stderr) == (1, "Error: feed: no such feed here\n")


def test_O69_one_dump_and_nothing_else() -> None:
    """With a place that is named in one way."""
    where = ["--feed", "main", "--endpoint-url", "http://127.0.0.1:9"]
    for arguments in (where, [*where, "one", "two"], [*where, "one", "--stage", "dev"]):
        assert CliRunner().invoke(main, ["sync", *arguments]).exit_code == 2


def test_without_java(twin: Twin, feed: str, tmp_path: Path) -> None:
    """Sail syncs; of Spark one sentence says what is missing, before anything is waited for."""
    (tmp_path / "bin").mkdir()
    dump = written(tmp_path / "dump", [line("a", 1)])
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    where = ["--feed", feed, "--endpoint-url", twin.dynamodb_url]
    spark, sail = (
        subprocess.run(
            [*COMMAND, dump, *where, *engine],
            env=environment | {"PATH": str(tmp_path / "bin")},
            capture_output=True,
            text=True,
        )
        for engine in (["--engine", "spark"], [])
    )
    sentence = "Error: Spark needs Java 17 or newer, and java was not found\n"
    assert (spark.returncode, spark.stderr, spark.stdout) == (1, sentence, "")
    assert (sail.returncode, "applied 1" in sail.stdout) == (0, True), sail.stderr


def test_the_help_shows_how() -> None:
    """Examples of frequent uses, and the meaning of the exit codes."""
    for words, wanted in (
        (["--help"], ["tidings sync videos.json --stage dev --as-of", "3 stopped by a guard"]),
        (["approve", "--help"], ["sync approve [OPTIONS] ID"]),
        (["reject", "--help"], ["Reject the plan"]),
    ):
        done = subprocess.run([*COMMAND, *words], capture_output=True, text=True)
        assert done.returncode == 0
        assert [each for each in wanted if each not in done.stdout] == []
