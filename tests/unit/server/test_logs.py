"""The log of a host: as text, and as one JSON object per line with the same facts."""

from __future__ import annotations

import io
import json
import logging
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
