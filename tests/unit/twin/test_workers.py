"""The processes of functions: pools of workers, and the server of the streaming function."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest

from tests.twin.runtime_api import RESPONSE_BYTES_MAX, Answer
from tests.twin.workers import Pool, Program, StreamFunction

HANDLER = """
import os, sys, time, urllib.error, urllib.request
if os.environ.get("BROKEN"):
    raise RuntimeError("cannot be imported")
def handle(event, context):
    match event.get("do"):
        case "raise":
            raise KeyError("as told")
        case "exit":
            os._exit(3)
        case "sleep":
            time.sleep(event["seconds"])
        case "mark":
            open(event["path"], "w").close()
            time.sleep(60)
        case "steal":
            address = os.environ["AWS_LAMBDA_RUNTIME_API"].rpartition("@")[2]
            try:
                body = None if event["path"].endswith("/next") else b"{}"
                urllib.request.urlopen(f"http://{address}{event['path']}", body)
            except urllib.error.HTTPError as error:
                return {"status": error.code}
        case "flood":
            return "x" * event["size"]
    return {
        "pid": os.getpid(),
        "left_ms": context.get_remaining_time_in_millis(),
        "arn": context.invoked_function_arn,
        "id": context.aws_request_id,
        "trace": os.environ["_X_AMZN_TRACE_ID"],
        "name": context.function_name,
    }
"""
ARN = "arn:aws:lambda:us-east-1:000000000000:function:f"


@pytest.fixture
def options() -> dict[str, Any]:
    """Return the options that differ from those of other pools."""
    return {}


def having(**options: Any) -> pytest.MarkDecorator:
    """Mark a test to run with a pool with *options*."""
    return pytest.mark.parametrize("options", [options], ids=[",".join(options)])


@pytest.fixture
def pool(runner: asyncio.Runner, tmp_path: Path, options: dict[str, Any]) -> Iterator[Pool]:
    """Create a pool with one worker, unless *options* say otherwise; it is stopped after the
    test."""
    (tmp_path / "handler.py").write_text(HANDLER)
    settings: dict[str, Any] = {"workers_max": 1, "timeout_s": 5.0, "BROKEN": ""} | options
    environment = {
        "PATH": os.defpath,
        "PYTHONPATH": str(tmp_path),
        "AWS_LAMBDA_FUNCTION_NAME": "f",
        "BROKEN": settings["BROKEN"],
    }
    program = Program("f", tmp_path, settings["timeout_s"], environment, ARN)
    with tempfile.TemporaryFile() as log:
        made = Pool(program, log, workers_max=settings["workers_max"])
        yield made
        runner.run(made.stop())


async def call(pool: Pool, **event: object) -> tuple[Answer, Any]:
    answer = await pool.invoke(json.dumps(event).encode())
    return answer, json.loads(answer.payload)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_handler_gets_the_context_that_lambda_gives_it(pool: Pool) -> None:
    """The deadline, the ARN, the request id and the trace id come from the Runtime API."""
    answer, value = await call(pool)

    assert answer.error is None
    assert 4000 < value["left_ms"] <= 5000
    assert value["arn"] == ARN
    assert value["name"] == "f"
    assert len(value["id"]) == 36
    assert value["trace"].startswith("Root=1-")


async def test_a_warm_worker_is_used_again(pool: Pool) -> None:
    """Invocations after each other run in one process."""
    pids = {(await call(pool))[1]["pid"] for _ in range(3)}

    assert len(pids) == 1


@having(workers_max=2)
async def test_invocations_at_once_use_as_many_workers_as_the_bound_allows(pool: Pool) -> None:
    """Two workers serve five invocations; the others wait and none is lost."""
    calls = [call(pool, do="sleep", seconds=0.05) for _ in range(5)]
    pids = {value["pid"] for _, value in await asyncio.gather(*calls)}

    assert len(pids) == 2


async def test_an_exception_is_answered_with_lambdas_error_document(pool: Pool) -> None:
    """The type, the message and the stack trace name what the handler raised; it stays warm."""
    _, before = await call(pool)
    answer, error = await call(pool, do="raise")
    _, after = await call(pool)

    assert answer.error == "Unhandled"
    assert error["errorType"] == "KeyError"
    assert error["errorMessage"] == "'as told'"
    assert "handler.py" in error["stackTrace"][0]
    assert before["pid"] == after["pid"]


@having(timeout_s=0.5)
async def test_a_worker_over_its_time_limit_is_killed(pool: Pool) -> None:
    """The invocation is answered with a time-out, the process is gone, the next one is new."""
    _, before = await call(pool)
    answer, error = await call(pool, do="sleep", seconds=60)
    _, after = await call(pool)

    assert answer.error == "Unhandled"
    assert error["errorType"] == "Sandbox.Timedout"
    assert error["errorMessage"].endswith("Task timed out after 0.50 seconds")
    assert not alive(before["pid"])
    assert after["pid"] != before["pid"]


async def test_a_crashed_worker_is_replaced(pool: Pool) -> None:
    """A process that exits in the middle fails its invocation and no other."""
    answer, error = await call(pool, do="exit")
    healthy, _ = await call(pool)

    assert answer.error == "Unhandled"
    assert error["errorType"] == "Runtime.ExitError"
    assert error["errorMessage"].endswith("Runtime exited with exit status 3")
    assert healthy.error is None


async def test_a_worker_killed_while_idle_is_replaced(pool: Pool) -> None:
    """An invocation never goes to a process that has already ended."""
    _, before = await call(pool)
    os.kill(before["pid"], 9)
    answer, after = await call(pool)
    if answer.error is not None:  # the kill was noticed only while it was invoked
        answer, after = await call(pool)

    assert answer.error is None
    assert after["pid"] != before["pid"]


@having(BROKEN="1")
async def test_a_handler_that_cannot_be_imported_fails_each_invocation(pool: Pool) -> None:
    """The answer is the error of the import."""
    answer, error = await call(pool)

    assert answer.error == "Unhandled"
    assert error["errorType"] == "RuntimeError"
    assert error["errorMessage"] == "cannot be imported"


async def test_stopping_leaves_no_process(pool: Pool) -> None:
    """Every worker of a stopped pool has ended."""
    _, value = await call(pool)
    await pool.stop()

    assert not alive(value["pid"])


@pytest.mark.parametrize("payload", [b"{", b""])
async def test_a_payload_that_is_not_json_fails_the_invocation_alone(
    pool: Pool, payload: bytes
) -> None:
    """The runtime client reports it and continues."""
    answer = await pool.invoke(payload)
    healthy, _ = await call(pool)

    assert answer.error == "Unhandled"
    assert healthy.error is None


async def test_an_answer_above_lambdas_limit_fails(pool: Pool) -> None:
    """Six megabytes with their quotes fit, one byte more does not."""
    limit = RESPONSE_BYTES_MAX
    fits = await pool.invoke(json.dumps({"do": "flood", "size": limit - 2}).encode())
    answer, error = await call(pool, do="flood", size=limit - 1)

    assert fits.error is None
    assert answer.error == "Unhandled"
    assert error["errorType"] == "Function.ResponseSizeTooLarge"


async def test_a_cancelled_invocation_ends_its_worker(pool: Pool, tmp_path: Path) -> None:
    """Its slot is free again and the next invocation has a process of its own."""
    mark = tmp_path / "mark"
    _, before = await call(pool)
    running = asyncio.ensure_future(call(pool, do="mark", path=str(mark)))
    while not mark.exists():
        await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    _, after = await call(pool)

    assert not alive(before["pid"])
    assert after["pid"] != before["pid"]


@pytest.mark.parametrize("path", ["invocation/next", "invocation/1/response", "init/error"])
async def test_who_has_not_its_password_hears_no_event(path: str, pool: Pool) -> None:
    """Every program on the machine reaches the Runtime API, and events hold passwords."""
    _, found = await call(pool, do="steal", path=f"/2018-06-01/runtime/{path}")

    assert found == {"status": 403}


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
SCOPE = {
    "method": "GET",
    "path": "/ops",
    "raw_path": b"/ops",
    "query_string": b"types=a|b",
    "headers": [(b"accept", b"*/*"), (b"host", b"feed.example")],
}


class Running(StreamFunction):
    """A function with a server that is at *place* already."""

    def __init__(self, place: Path) -> None:
        program = Program("stream", place.parent, 60.0, {}, "arn")
        super().__init__(program, cast("BinaryIO", None))
        self._at = place

    async def _start(self) -> None:
        """Do nothing: the server is running."""

    def _socket_path(self) -> Path:
        return self._at


async def _ask(parts: Sequence[bytes]) -> tuple[bytes, list[dict[str, Any]]]:
    """Return the request that a server got, and the messages that its answer *parts* became."""
    heard, sent = bytearray(), list[dict[str, Any]]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await reader.readuntil(b"\r\n\r\n"))
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.02)
        writer.close()

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(dict(message))

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "server"
        server = await asyncio.start_unix_server(serve, place)
        try:
            await Running(place).proxy(SCOPE, receive, send)
        finally:
            server.close()
    return bytes(heard), sent


def ask(*parts: bytes) -> tuple[bytes, list[dict[str, Any]]]:
    return asyncio.run(asyncio.wait_for(_ask(parts), 60))


def test_a_stream_comes_as_it_is_sent() -> None:
    """The marks of its chunks are removed; the request is that of the client, byte for byte."""
    heard, (start, *pieces, end) = ask(CHUNKED, b"3\r\nabc\r\n2\r\nde\r\n", b"1\r\nf\r\n0\r\n\r\n")

    assert start["status"] == 200
    assert start["headers"] == [(b"content-type", b"text/event-stream")]
    assert b"".join(each["body"] for each in pieces) == b"abcdef"
    assert all(each["more_body"] for each in pieces)
    assert end == {"type": "http.response.body", "body": b""}
    assert heard.startswith(b"GET /ops?types=a|b HTTP/1.1\r\n")
    assert b"\r\naccept: */*\r\n" in heard.lower()
    assert b"\r\nx-forwarded-host: feed.example\r\n" in heard.lower()
    assert b"user-agent" not in heard.lower()


def test_a_whole_answer() -> None:
    """Body and head may come together."""
    _, (_, piece, end) = ask(HEAD + b"content-length: 2\r\n\r\nok")
    assert (piece["body"], end["body"]) == (b"ok", b"")


@pytest.mark.parametrize("parts", [(), (HEAD,), (b"hello\r\n\r\n",)])
def test_a_server_that_does_not_answer_is_unreachable(parts: tuple[bytes, ...]) -> None:
    """API Gateway says 502."""
    assert ask(*parts)[1][0]["status"] == 502


@pytest.mark.parametrize("parts", [(CHUNKED, b"3\r\nab"), (CHUNKED, b"3\r\nabc\r\n")])
def test_an_answer_that_is_cut_has_no_end(parts: tuple[bytes, ...]) -> None:
    """The answer must not look complete."""
    sent = ask(*parts)[1]
    assert sent[0]["status"] == 200
    assert all(each.get("more_body") for each in sent[1:])
