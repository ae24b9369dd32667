"""The Lambda Invoke API, called by boto3's own client."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config

from tests.twin.lambda_api import ASYNC_BYTES_MAX, Answer, LambdaApi, LoopbackServer, failure

PREFIX = "tidings-local-"


class Api:
    """The API with one function, `f`: it gives *answers* in turn, the last one again and again."""

    def __init__(self) -> None:
        self.answers = [Answer(b"{}")]
        self.calls: list[tuple[str, bytes]] = []
        self._lambda = LambdaApi(["f"], self._answer, retry_after_s=(0.01, 0.01))
        self._server = LoopbackServer(self._lambda.handle)

    async def _answer(self, name: str, payload: bytes) -> Answer:
        self.calls.append((name, payload))
        return self.answers[min(len(self.calls), len(self.answers)) - 1]

    async def start(self) -> None:
        await self._server.start()
        self.client = boto3.client(
            "lambda",
            endpoint_url=f"http://127.0.0.1:{self._server.port}",
            region_name="us-east-1",
            aws_access_key_id="x",
            aws_secret_access_key="x",
            config=Config(retries={"max_attempts": 0}, proxies={}),
        )

    async def invoke(self, name: str = PREFIX + "f", **options: Any) -> Any:
        """Return the answer, once the queue is empty."""
        answer = await asyncio.to_thread(self.client.invoke, FunctionName=name, **options)
        await self._lambda.idle()
        return answer

    async def stop(self) -> None:
        await self._lambda.stop()
        await self._server.stop()


@pytest.fixture
def api(runner: asyncio.Runner) -> Iterator[Api]:
    made = Api()
    runner.run(made.start())
    yield made
    runner.run(made.stop())


async def test_request_response_returns_the_payload(api: Api) -> None:
    """The handler's answer comes back, without an error header."""
    api.answers = [Answer(b'{"b":2}')]
    response = await api.invoke(Payload=b'{"a":1}')

    assert json.load(response["Payload"]) == {"b": 2}
    assert response["StatusCode"] == 200
    assert "FunctionError" not in response
    assert api.calls == [("f", b'{"a":1}')]


async def test_request_response_tells_a_function_error(api: Api) -> None:
    """A failure is an answer with status 200 and the error header."""
    api.answers = [failure("X", "y")]
    response = await api.invoke()

    assert response["FunctionError"] == "Unhandled"
    assert json.load(response["Payload"])["errorType"] == "X"
    assert len(api.calls) == 1


async def test_event_is_queued(api: Api) -> None:
    """The caller gets 202 and the function runs once."""
    response = await api.invoke(InvocationType="Event", Payload=io.BytesIO(b'{"ring":"x"}'))

    assert response["StatusCode"] == 202
    assert api.calls == [("f", b'{"ring":"x"}')]


@pytest.mark.parametrize(("failures", "calls"), [(1, 2), (2, 3), (9, 3)])
async def test_event_is_tried_three_times_at_most(api: Api, failures: int, calls: int) -> None:
    """An asynchronous invocation that fails is tried twice more, then dropped."""
    api.answers = [failure("X", "y")] * failures + [Answer(b"null")]
    await api.invoke(InvocationType="Event")

    assert len(api.calls) == calls


async def test_an_arn_names_a_function_too(api: Api) -> None:
    """A function is found by its ARN."""
    await api.invoke(f"arn:aws:lambda:us-east-1:000000000000:function:{PREFIX}f")

    assert api.calls == [("f", b"{}")]


async def test_an_unknown_function_is_told(api: Api) -> None:
    """boto3 raises what it raises on AWS."""
    with pytest.raises(api.client.exceptions.ResourceNotFoundException):
        await api.invoke(PREFIX + "nobody")

    assert api.calls == []


async def test_a_queued_payload_is_bounded(api: Api) -> None:
    """One megabyte is what Lambda queues."""
    with pytest.raises(api.client.exceptions.RequestTooLargeException):
        await api.invoke(InvocationType="Event", Payload=b" " * (ASYNC_BYTES_MAX + 1))

    assert api.calls == []
