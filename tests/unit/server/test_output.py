"""Output that is not read, or cannot be written: commands continue, or end with a clear code."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.compat.oplog.wire import until
from tidings.server import processes
from tidings.server.output import QUEUED_BYTES_MAX, Unblocked
from tidings.server.running import Server

OPERATION = {"event": "insert", "type": "video", "id": "x32"}
WITHIN_S = 180.0
TAIL = (sys.executable, "-m", "tidings", "tail")
KINDS = ("full pipe", "closed pipe", "full disk")


@contextlib.contextmanager
def unwritable(kind: str) -> Iterator[int]:
    """Yield a file descriptor that accepts no output."""
    if kind == "full disk":
        reading, writing = None, os.open("/dev/full", os.O_WRONLY)
    else:
        reading, writing = os.pipe()
    if kind == "full pipe":
        os.set_blocking(writing, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writing, b"x")
        os.set_blocking(writing, True)
    elif reading is not None:
        os.close(reading)
        reading = None
    yield writing
    for each in (reading, writing):
        if each is not None:
            os.close(each)


@pytest.mark.parametrize("waits", [True, False])
def test_a_pipe_that_is_read_late_has_whole_lines_in_order(
    waits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Lines beyond the limit are dropped and counted."""
    reading, writing = os.pipe()
    output = Unblocked("stderr", writing, waits=waits)
    lines = [b"%063d\n" % number for number in range(3 * QUEUED_BYTES_MAX // 64)]
    for line in lines:
        assert output.write(line) == len(line)
    assert not output.drain(0)
    with open(reading, "rb") as file:
        kept = [file.readline() for _ in range(QUEUED_BYTES_MAX // 64)]
        until(lambda: caplog.records)
        (record,) = caplog.records
        assert record.name == "tidings.server.output" and record.levelno == logging.WARNING
        assert isinstance(record.args, dict)
        left = len(lines) - int(record.args["lines"]) - len(kept)
        kept += [file.readline() for _ in range(left)]
        assert kept == sorted({*kept}) and {*kept} < {*lines}
        assert output.drain(WITHIN_S)
        output.write(b"later\n")
        assert file.readline() == b"later\n"
    os.close(writing)


@pytest.mark.parametrize("kind", KINDS[1:])
def test_output_that_cannot_be_written_is_dropped(kind: str) -> None:
    with unwritable(kind) as descriptor:
        output = Unblocked("stderr", descriptor, waits=True)
        for _ in range(3):
            assert output.write(b"a line\n") == 7
        assert output.drain(WITHIN_S)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", ["serve", "agent"])
def test_a_host_continues_without_its_output(tmp_path: Path, command: str, kind: str) -> None:
    """It is ready, accepts operations, logs errors, and ends when asked to."""
    port = processes.free_port()
    url = f"http://127.0.0.1:{port}"
    options: dict[str, list[str]] = {
        "serve": ["--port", str(port), "--data", str(tmp_path), "--verbose"],
        "agent": ["--url", "http://127.0.0.1:1", "--listen", f":{port}", "--queue-dir"],
    }
    options["agent"] += [str(tmp_path), "--drain-seconds", "0"]
    with unwritable(kind) as descriptor:
        host = subprocess.Popen(
            [sys.executable, "-m", "tidings", command, *options[command]],
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
        )
        try:
            until(lambda: _status(f"{url}/status") == 200)
            for _ in range(20):
                assert httpx.post(url, json=OPERATION, timeout=WITHIN_S).status_code == 204
            host.send_signal(signal.SIGTERM)
            assert host.wait(WITHIN_S) == 0
        finally:
            host.kill()


def _status(url: str) -> int:
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(url).status_code
    return 0


@pytest.mark.parametrize(
    ("output", "kind", "code"),
    [("stdout", "full disk", 1), ("stdout", "full pipe", -15)]
    + [("stderr", each, 0) for each in KINDS],
)
def test_a_command_that_prints_events_ends(
    tmp_path: Path, output: str, kind: str, code: int
) -> None:
    """Events that are not printed are not acknowledged; a full disk is named in one sentence."""
    said, state = tmp_path / "said", tmp_path / "state"
    with Server() as server, unwritable(kind) as descriptor, said.open("wb") as other:
        httpx.post(server.url, json=OPERATION).raise_for_status()
        tail = subprocess.Popen(
            [*TAIL, "--url", server.url, "--from", "0", "--state-file", str(state)],
            stdin=subprocess.DEVNULL,
            stdout=descriptor if output == "stdout" else other,
            stderr=descriptor if output == "stderr" else other,
        )
        try:
            if code != 1:
                until(
                    lambda: state.exists() if output == "stdout" else b"live" in said.read_bytes()
                )
                tail.send_signal(signal.SIGTERM)
            # The signal may arrive before the first event, which is then not printed.
            assert tail.wait(WITHIN_S) in ((code, 0) if kind == "full pipe" else (code,))
        finally:
            tail.kill()
    if output == "stdout":
        assert state.read_text() == "0"
    if code == 1:
        assert said.read_text() == (
            "Error: the output cannot be written: No space left on device\n"
        )


@pytest.mark.parametrize(
    ("output", "kind", "code"), [("stdout", "full disk", 1), ("stderr", "full pipe", 0)]
)
def test_a_sync_is_done_without_its_output(
    tmp_path: Path, output: str, kind: str, code: int
) -> None:
    said, dump = tmp_path / "said", tmp_path / "dump"
    dump.write_text('{"type":"video","id":"x32"}\n')
    with Server() as server, unwritable(kind) as descriptor, said.open("wb") as other:
        sync = [*TAIL[:3], "sync", str(dump), "--url", server.url, "--engine", "sail", "--json"]
        done = subprocess.run(
            sync,
            stdin=subprocess.DEVNULL,
            stdout=descriptor if output == "stdout" else other,
            stderr=descriptor if output == "stderr" else other,
            check=False,
        )
        assert done.returncode == code
        assert httpx.get(f"{server.url}feeds/main/objects?type=video").json()["objects"]
