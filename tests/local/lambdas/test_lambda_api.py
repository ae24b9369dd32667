"""The Lambda Invoke API, called by boto3's own client."""

import asyncio
import io
import json
from collections.abc import Callable
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from tidings.local.gateway import loopback
from tidings.local.gateway.internal_apis import InternalApis
from tidings.local.lambdas.lambda_api import ASYNC_BYTES_MAX, LambdaApi
from tidings.local.lambdas.runtime_api import Answer, failure

Client = Any
PREFIX = "tidings-local-"


def run(
    scenario: Callable[[Client], None], answers: list[Answer], *, expected_calls: int
) -> list[tuple[str, bytes]]:
    """Run *scenario* in a thread; *answers* are given in turn, the last one again and again."""
    calls: list[tuple[str, bytes]] = []
    enough = asyncio.Event()

    async def invoke(name: str, payload: bytes) -> Answer:
        calls.append((name, payload))
        if len(calls) == expected_calls:
            enough.set()
        return answers[min(len(calls), len(answers)) - 1]

    async def whole() -> None:
        api = LambdaApi(["f"], invoke, retry_after_s=(0.01, 0.01))
        apis = InternalApis()
        apis.serve(api.handle)
        await apis.start()
        await asyncio.to_thread(scenario, _client(apis.url, apis.token))
        if expected_calls:
            await asyncio.wait_for(enough.wait(), 5)
        await asyncio.wait_for(api.idle(), 5)
        await api.stop()
        await apis.stop()

    asyncio.run(whole())
    return calls


def _client(url: str, token: str) -> Client:
    return boto3.client(
        "lambda",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="x",
        aws_secret_access_key="x",
        aws_session_token=token,
        config=Config(retries={"max_attempts": 0}, proxies={}),
    )


def test_request_response_returns_the_payload() -> None:
    """The handler's answer comes back, without an error header."""

    def scenario(client: Client) -> None:
        response = client.invoke(FunctionName=PREFIX + "f", Payload=b'{"a":1}')

        assert json.load(response["Payload"]) == {"b": 2}
        assert response["StatusCode"] == 200
        assert "FunctionError" not in response

    calls = run(scenario, [Answer(b'{"b":2}')], expected_calls=1)

    assert calls == [("f", b'{"a":1}')]


def test_request_response_tells_a_function_error() -> None:
    """A failure is an answer with status 200 and the error header."""

    def scenario(client: Client) -> None:
        response = client.invoke(FunctionName=PREFIX + "f")

        assert response["FunctionError"] == "Unhandled"
        assert json.load(response["Payload"])["errorType"] == "X"

    calls = run(scenario, [failure("X", "y")], expected_calls=1)

    assert len(calls) == 1


def test_event_is_queued() -> None:
    """The caller gets 202 and the function runs once."""

    def scenario(client: Client) -> None:
        response = client.invoke(
            FunctionName=PREFIX + "f", InvocationType="Event", Payload=io.BytesIO(b'{"ring":"x"}')
        )

        assert response["StatusCode"] == 202

    calls = run(scenario, [Answer(b"null")], expected_calls=1)

    assert calls == [("f", b'{"ring":"x"}')]


@pytest.mark.parametrize(("failures", "calls_expected"), [(1, 2), (2, 3), (9, 3)])
def test_event_is_tried_three_times_at_most(failures: int, calls_expected: int) -> None:
    """An asynchronous invocation that fails is tried twice more, then dropped."""

    def scenario(client: Client) -> None:
        client.invoke(FunctionName=PREFIX + "f", InvocationType="Event")

    answers = [failure("X", "y")] * failures + [Answer(b"null")]
    calls = run(scenario, answers, expected_calls=calls_expected)

    assert len(calls) == calls_expected


def test_an_arn_names_a_function_too() -> None:
    """A function is found by its ARN."""

    def scenario(client: Client) -> None:
        client.invoke(FunctionName=f"arn:aws:lambda:us-east-1:000000000000:function:{PREFIX}f")

    calls = run(scenario, [Answer(b"{}")], expected_calls=1)

    assert calls == [("f", b"{}")]


def test_an_unknown_function_is_told() -> None:
    """boto3 raises what it raises on AWS."""

    def scenario(client: Client) -> None:
        with pytest.raises(client.exceptions.ResourceNotFoundException):
            client.invoke(FunctionName=PREFIX + "nobody")

    assert run(scenario, [Answer(b"{}")], expected_calls=0) == []


def test_a_queued_payload_is_bounded() -> None:
    """One megabyte is what Lambda queues."""

    def scenario(client: Client) -> None:
        with pytest.raises(client.exceptions.RequestTooLargeException):
            client.invoke(
                FunctionName=PREFIX + "f",
                InvocationType="Event",
                Payload=b" " * (ASYNC_BYTES_MAX + 1),
            )

    assert run(scenario, [Answer(b"{}")], expected_calls=0) == []


@pytest.mark.parametrize("token", ["", "made up"])
def test_who_has_not_the_token_calls_nothing(token: str) -> None:
    """Every program on the machine reaches the port."""

    def scenario(client: Client) -> None:
        stranger = _client(client.meta.endpoint_url, token)

        with pytest.raises(ClientError, match="UnrecognizedClientException"):
            stranger.invoke(FunctionName=PREFIX + "f", Payload=b"{}")

    assert run(scenario, [Answer(b"{}")], expected_calls=0) == []


def test_a_body_that_never_comes_holds_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server cuts it; nobody is called."""
    monkeypatch.setattr(loopback, "BODY_S", 0.05)

    async def whole() -> None:
        server = loopback.LoopbackServer(_nobody)
        await server.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n{")
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
        await server.stop()

    asyncio.run(whole())


async def _nobody(request: loopback.Request) -> loopback.Response:
    raise AssertionError(request)
