"""The log of a host, as text and as JSON, and output that is not read or cannot be written."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from aws_lambda_powertools import Logger
from click.testing import CliRunner

from tests.compat.oplog.wire import until
from tests.hosts import make_key
from tidings.client.cli.main import main
from tidings.server import processes
from tidings.server.logs import VARIABLE, JsonFormatter
from tidings.server.output import QUEUED_BYTES_MAX, Unblocked
from tidings.server.running import NotReady, Server

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
OPERATION = {"event": "insert", "type": "video", "id": "x32"}


def lines(server: Server) -> list[dict[str, Any]]:
    """Return the lines of stderr; a line that is not JSON fails the test."""
    return [json.loads(line) for line in server.errors().splitlines()]


@pytest.fixture
def log() -> Iterator[tuple[logging.Logger, io.StringIO]]:
    """Yield a logger that writes JSON, and its output."""
    output, logger = io.StringIO(), logging.getLogger("tests.logs")
    handler = logging.StreamHandler(output)
    handler.setFormatter(JsonFormatter("tidings-serve"))
    logger.addHandler(handler)
    logger.propagate = False
    yield logger, output
    logger.removeHandler(handler)


def test_each_line_of_a_server_is_an_object_with_its_fields() -> None:
    """A traced request is found by its id, and a warning by its feed."""
    headers = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
    closed = ("--setting", "TIDINGS_OPEN=false")
    with Server("--log-format", "json", *closed) as server:
        until(lambda: len(lines(server)) == 1)
        (warning,) = lines(server)
        assert (warning["level"], warning["feed"]) == ("WARNING", "main")
        assert warning["message"].startswith("the feed main is closed")
        assert warning["logger"] == "tidings.server.serving"
        key = make_key(server, "--role", "ingest")
        headers["authorization"] = f"Bearer {key}"
        httpx.post(server.url, json=OPERATION, headers=headers).raise_for_status()
        headers["authorization"] = "Basic c2VjcmV0OnNlY3JldA=="
        assert httpx.post(server.url, json=OPERATION, headers=headers).status_code == 401
        until(lambda: len(lines(server)) == 4)
        traced = [each for each in lines(server) if each.get("trace_id") == TRACE]
        assert sorted(each["step"] for each in traced) == ["ingest", "push", "state"]
        assert {(each["feed"], each["page"]) for each in traced} == {("main", 1)}
        assert key not in server.errors() and "c2VjcmV0" not in server.errors()


def test_the_variable_selects_the_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "json")
    with Server("--setting", "TIDINGS_OPEN=false") as server:
        until(lambda: len(lines(server)) == 1)
        assert lines(server)[0]["service"] == "tidings-serve"
    monkeypatch.setenv(VARIABLE, "xml")
    done = CliRunner().invoke(main, ["serve"])
    assert done.exit_code == 2 and "--log-format" in done.output


def test_the_end_of_a_host_that_cannot_start_is_an_object_too(tmp_path: Path) -> None:
    with closing(*processes.listen("127.0.0.1", 0)) as taken:
        server = Server("--log-format", "json", data=tmp_path)
        server.port = taken.getsockname()[1]
        with pytest.raises(NotReady) as error:
            server.start()
    problem = json.loads(str(error.value))
    assert problem["level"] == "ERROR" and str(server.port) in problem["message"]


def test_an_agent_writes_objects(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    command = ["agent", "--url", "http://127.0.0.1:1", "--log-format", "json"]
    command = [sys.executable, "-m", "tidings", *command, "--queue-dir", str(tmp_path / "file/a")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 1
    assert "cannot use the queue folder" in json.loads(line)["message"]


def test_an_exception_is_one_line(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, output = log
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logger.exception("%(feed)s failed", {"feed": "main", "status": 500, "error": OSError("no")})
    line = json.loads(output.getvalue().removesuffix("\n"))
    assert output.getvalue().count("\n") == 1
    assert line["exception_name"] == "ValueError"
    assert line["exception"].startswith("Traceback") and "two\nlines" in line["exception"]
    assert (line["feed"], line["status"], line["error"]) == ("main", 500, "no")
    assert line["message"] == "main failed"


def test_a_field_does_not_replace_a_key_of_the_line(
    log: tuple[logging.Logger, io.StringIO],
) -> None:
    logger, output = log
    logger.error("%(message)s", {"message": "mine", "level": "LOW"})
    line = json.loads(output.getvalue())
    assert (line["message"], line["level"]) == ("mine", "ERROR")


def test_the_keys_are_those_of_a_stage(log: tuple[logging.Logger, io.StringIO]) -> None:
    """So that one query finds the lines of both."""
    logger, output = log
    logger.warning("%s", "x")
    powertools = io.StringIO()
    Logger(service="dev", stream=powertools).warning("x")

    ours: Mapping[str, object] = json.loads(output.getvalue())
    theirs: Mapping[str, object] = json.loads(powertools.getvalue())
    assert {*theirs} <= {*ours}
    assert {*ours} - {*theirs} == {"logger"}


ID = "4bf92f3577b34da6a3ce929d0e0e4736"
_LINE = re.compile(rf"INFO tidings\.traces traced trace_id={ID} step=(\w+) feed=main page=1 ms=\d+")


def test_a_traced_request_is_found_in_the_log_by_its_id() -> None:
    """The request and each follower have a line; another request has none."""
    operation = {"event": "insert", "type": "video", "id": "x32"}
    headers = {"traceparent": f"00-{ID}-00f067aa0ba902b7-01"}
    with Server() as server:
        httpx.post(server.url, json=operation, headers=headers).raise_for_status()
        httpx.post(server.url, json=operation).raise_for_status()
        until(lambda: len(_LINE.findall(server.errors())) == 3)
        assert sorted(_LINE.findall(server.errors())) == ["ingest", "push", "state"]
        assert server.errors().count("traced") == 3


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
                until(state.exists)
                tail.send_signal(signal.SIGTERM)
            # The signal may arrive before the first event, which is then not printed.
            assert tail.wait(WITHIN_S) in ((code, 0) if kind == "full pipe" else (code,))
        finally:
            tail.kill()
        if output == "stdout":
            words = [*TAIL, "--url", server.url, "--state-file", str(state), "--count", "1"]
            again = subprocess.run(words, capture_output=True, text=True, timeout=WITHIN_S)
            assert OPERATION["id"] in again.stdout
    if code == 1:
        assert said.read_text().splitlines()[-1] == (
            "Error: the output cannot be written: No space left on device"
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
