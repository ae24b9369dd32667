"""The WebSocket API and `@connections`, called by real clients: websockets and boto3."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.twin.__main__ import serving_apis
from tests.twin.http_gateway import HttpGateway
from tests.twin.lambda_api import Answer, ConnectionsApi, LoopbackServer, failure
from tests.twin.socket_gateway import FRAME_BYTES_MAX, MESSAGE_BYTES_MAX, SocketGateway
from tidings.aws.config import deployment
from tidings.server import processes

PATIENCE_S = 180.0

Event = dict[str, Any]


class Api:
    """A WebSocket API in this process; its functions record their events."""

    def __init__(self, url: str, management: Any) -> None:
        self.url = url
        self.management = management
        self.events: list[Event] = []
        self.answers: dict[str, Answer] = {}
        self.changed = asyncio.Condition()

    async def invoke(self, name: str, payload: bytes) -> Answer:
        event = json.loads(payload)
        async with self.changed:
            self.events.append(event)
            self.changed.notify_all()
        return self.answers.get(event["requestContext"]["routeKey"], Answer(b'{"statusCode":200}'))

    async def event(self, route: str) -> Event:
        """Wait for the first event of *route*, and return it."""

        def found() -> list[Event]:
            return [e for e in self.events if e["requestContext"]["routeKey"] == route]

        async with self.changed:
            await asyncio.wait_for(self.changed.wait_for(found), PATIENCE_S)
        return found()[0]

    async def manage(self, call: str, **arguments: Any) -> Any:
        """Call `@connections` in a thread."""
        return await asyncio.to_thread(getattr(self.management, call), **arguments)

    async def error_of(self, call: str, **arguments: Any) -> tuple[str, int]:
        with pytest.raises(ClientError) as caught:
            await self.manage(call, **arguments)
        response = caught.value.response
        return response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]


@contextlib.asynccontextmanager
async def serving(idle_s: float = 600, life_s: float = 7200) -> AsyncIterator[Api]:
    (listener,) = processes.listen("127.0.0.1", 0)
    apis = LoopbackServer()
    await apis.start()
    url = f"ws://127.0.0.1:{listener.getsockname()[1]}/ws"
    api = Api(url, _management(f"http://127.0.0.1:{apis.port}/local"))
    sockets = SocketGateway(deployment.SOCKET_ROUTES, api.invoke, idle_s=idle_s, life_s=life_s)
    apis.serve(ConnectionsApi(sockets).handle)
    http = HttpGateway([], api.invoke, {}, origins=["*"])
    async with serving_apis(http, sockets, [listener]):
        yield api
    await apis.stop()


@pytest.fixture
def limits() -> dict[str, float]:
    """Return the limits for the idle time and the life of a connection, by default AWS's."""
    return {}


@pytest.fixture
def api(runner: asyncio.Runner, limits: dict[str, float]) -> Iterator[Api]:
    served = serving(**limits)
    yield runner.run(served.__aenter__())
    runner.run(served.__aexit__(None, None, None))


def lasting(**limits: float) -> pytest.MarkDecorator:
    """Mark a test to run with connections that have these *limits*."""
    return pytest.mark.parametrize("limits", [limits], ids=[",".join(limits)])


def _management(url: str) -> Any:
    return boto3.client(
        "apigatewaymanagementapi",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="x",
        aws_secret_access_key="x",
        config=Config(retries={"max_attempts": 0}, proxies={}),
    )


async def test_8_7_a_keep_alive_reaches_no_function(api: Api) -> None:
    """P8.7: the gateway accepts it without an answer, like a route without a response."""
    async with connect(api.url) as client:
        await client.send('{"action":"keepalive","more":1}')
        for other in ('{"action":"keepalives"}', "keepalive", '["keepalive"]', '{"action":["x"]}'):
            await client.send(other)
        for route in ("$connect", "$disconnect"):  # no client names those
            await client.send(json.dumps({"action": route}))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.recv(), 0.2)

    await api.event("$disconnect")
    said = [each["body"] for each in api.events if "body" in each]
    assert len(said) == 6 and not any("more" in each for each in said)


@lasting(idle_s=2)
async def test_8_7_a_keep_alive_is_activity(api: Api) -> None:
    """P8.7: a client that sends one before the idle limit stays connected."""
    async with connect(api.url) as client:
        for _ in range(12):
            await asyncio.sleep(0.25)
            await client.send('{"action":"keepalive"}')
        assert await closing_code(client) == 1001


async def closing_code(client: ClientConnection) -> int:
    with pytest.raises(ConnectionClosed) as caught:
        while True:
            await asyncio.wait_for(client.recv(), PATIENCE_S)
    return caught.value.rcvd.code if caught.value.rcvd else 1006


async def test_connect_has_the_query_and_the_headers(api: Api) -> None:
    """`$connect` is a genuine CONNECT event, with single and multiple values."""
    async with connect(api.url + "?a=1&a=2", additional_headers={"X-Y": "z"}):
        event = await api.event("$connect")

    context = event["requestContext"]
    assert event["queryStringParameters"] == {"a": "2"}
    assert event["multiValueQueryStringParameters"] == {"a": ["1", "2"]}
    assert event["headers"]["X-Y"] == "z"
    assert event["multiValueHeaders"]["X-Y"] == ["z"]
    assert context["eventType"] == "CONNECT"
    assert context["stage"] == "local"
    assert context["domainName"].startswith("127.0.0.1")
    assert context["identity"]["sourceIp"] == "127.0.0.1"
    assert context["requestTimeEpoch"] >= context["connectedAt"] > 1_700_000_000_000


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (Answer(b'{"statusCode":401}'), 401),
        (Answer(b'{"statusCode":403}'), 403),
        (Answer(b"null"), 500),
        (failure("X", "y"), 500),
    ],
)
async def test_a_connection_is_refused_unless_connect_answers_2xx(
    api: Api, answer: Answer, status: int
) -> None:
    """The handshake fails with the status; there is no `$disconnect`."""
    api.answers["$connect"] = answer
    with pytest.raises(InvalidStatus) as caught:
        await connect(api.url)

    assert caught.value.response.status_code == status
    assert [e["requestContext"]["routeKey"] for e in api.events] == ["$connect"]


async def test_another_path_is_not_a_socket(api: Api) -> None:
    """Only `/ws` takes connections."""
    with pytest.raises(InvalidStatus) as caught:
        await connect(api.url + "x")

    assert caught.value.response.status_code == 404


async def test_a_message_is_a_default_event(api: Api) -> None:
    """The body is the text; the connection is the one that connected."""
    async with connect(api.url) as client:
        await client.send('{"action":"ping"}')
        event = await api.event("$default")
    context = event["requestContext"]
    connected = (await api.event("$connect"))["requestContext"]

    assert event["body"] == '{"action":"ping"}'
    assert event["isBase64Encoded"] is False
    assert context["eventType"] == "MESSAGE"
    assert context["connectionId"] == connected["connectionId"]
    assert context["connectedAt"] == connected["connectedAt"]
    assert context["messageId"]


async def test_a_message_that_fails_is_told_to_its_sender(api: Api) -> None:
    """API Gateway's own apology names the connection and the request."""
    api.answers["$default"] = failure("X", "y")
    async with connect(api.url) as client:
        await client.send("x")
        reply = json.loads(await asyncio.wait_for(client.recv(), PATIENCE_S))
        context = (await api.event("$default"))["requestContext"]

    assert reply == {
        "message": "Internal server error",
        "connectionId": context["connectionId"],
        "requestId": context["requestId"],
    }


async def test_disconnect_says_how_the_client_left(api: Api) -> None:
    """`$disconnect` carries the client's code and reason."""
    async with connect(api.url) as client:
        await client.close(4001, "enough")
    context = (await api.event("$disconnect"))["requestContext"]

    assert context["eventType"] == "DISCONNECT"
    assert context["disconnectStatusCode"] == 4001
    assert context["disconnectReason"] == "enough"


@pytest.mark.parametrize("size", [FRAME_BYTES_MAX + 1, MESSAGE_BYTES_MAX + 1])
async def test_a_frame_above_the_limit_closes_the_connection(api: Api, size: int) -> None:
    """Code 1009, and the message never reaches the function."""
    async with connect(api.url, max_size=None) as client:
        await client.send("x" * size)

        assert await closing_code(client) == 1009
    await api.event("$disconnect")
    assert "$default" not in [e["requestContext"]["routeKey"] for e in api.events]


@pytest.mark.parametrize(("frames", "arrives"), [(4, True), (5, False)])
async def test_a_message_of_several_frames_is_bounded_as_a_whole(
    api: Api, frames: int, arrives: bool
) -> None:
    """128 KB in frames of 32 KB arrive, more close the connection."""
    async with connect(api.url) as client:
        await client.send(["x" * FRAME_BYTES_MAX] * frames)
        if arrives:
            event = await api.event("$default")
            assert len(event["body"]) == MESSAGE_BYTES_MAX
        else:
            assert await closing_code(client) == 1009


@lasting(idle_s=0.1)
async def test_an_idle_connection_is_cut(api: Api) -> None:
    """Code 1001, and a `$disconnect`."""
    async with connect(api.url) as client:
        assert await closing_code(client) == 1001
    await api.event("$disconnect")


@lasting(idle_s=5, life_s=0.3)
async def test_a_connection_is_cut_at_its_age_however_busy(api: Api) -> None:
    """The two hours end a connection that is not idle, too."""
    async with connect(api.url) as client:
        with pytest.raises(ConnectionClosed) as caught:
            while True:
                await client.send("x")
                await asyncio.sleep(0.01)

    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1001


async def test_posts_arrive_in_order(api: Api) -> None:
    """Messages that are posted to a connection arrive as text, in the order of the posts."""
    async with connect(api.url) as client:
        id_ = (await api.event("$connect"))["requestContext"]["connectionId"]
        for number in range(5):
            await api.manage("post_to_connection", ConnectionId=id_, Data=str(number))
        received = [await asyncio.wait_for(client.recv(), PATIENCE_S) for _ in range(5)]

    assert received == ["0", "1", "2", "3", "4"]


async def test_a_connection_can_be_looked_at_and_closed(api: Api) -> None:
    """GET describes it, DELETE closes it with 1000, then it is gone."""
    async with connect(api.url, user_agent_header="me") as client:
        context = (await api.event("$connect"))["requestContext"]
        id_ = context["connectionId"]
        about = await api.manage("get_connection", ConnectionId=id_)
        await api.manage("delete_connection", ConnectionId=id_)
        code = await closing_code(client)
    error = await api.error_of("get_connection", ConnectionId=id_)

    assert about["Identity"] == {"SourceIp": "127.0.0.1", "UserAgent": "me"}
    assert int(about["ConnectedAt"].timestamp() * 1000) == context["connectedAt"]
    assert about["LastActiveAt"] >= about["ConnectedAt"]
    assert code == 1000
    assert error == ("GoneException", 410)


@pytest.mark.parametrize("call", ["post_to_connection", "get_connection", "delete_connection"])
async def test_a_connection_that_never_was_is_gone(api: Api, call: str) -> None:
    """410 GoneException, as boto3 raises it."""
    data = {"Data": "x"} if call == "post_to_connection" else {}

    assert await api.error_of(call, ConnectionId="abc=", **data) == ("GoneException", 410)


async def test_a_post_above_the_limit_is_refused(api: Api) -> None:
    """128 KB fit, one byte more is 413; the connection stays."""
    async with connect(api.url, max_size=None) as client:
        id_ = (await api.event("$connect"))["requestContext"]["connectionId"]
        large = await api.error_of(
            "post_to_connection", ConnectionId=id_, Data="x" * (MESSAGE_BYTES_MAX + 1)
        )
        await api.manage("post_to_connection", ConnectionId=id_, Data="x" * MESSAGE_BYTES_MAX)
        received = await asyncio.wait_for(client.recv(), PATIENCE_S)

    assert large == ("PayloadTooLargeException", 413)
    assert len(received) == MESSAGE_BYTES_MAX


async def test_a_client_that_does_not_read_is_told_to_its_writer(api: Api) -> None:
    """Posts are refused with 429 once too much is queued; other connections are not delayed."""
    async with connect(api.url, max_queue=1, max_size=None) as client:
        id_ = (await api.event("$connect"))["requestContext"]["connectionId"]
        client.transport.pause_reading()
        error = await _first_error(api, id_)
        async with connect(api.url) as other:
            await other.send("x")
            await api.event("$default")
        await api.manage("delete_connection", ConnectionId=id_)
        client.transport.abort()

    assert error == ("LimitExceededException", 429)


async def _first_error(api: Api, connection_id: str) -> tuple[str, int]:
    data = "x" * MESSAGE_BYTES_MAX
    for _ in range(200):
        try:
            await api.manage("post_to_connection", ConnectionId=connection_id, Data=data)
        except ClientError as error:
            metadata = error.response["ResponseMetadata"]
            return error.response["Error"]["Code"], metadata["HTTPStatusCode"]
    raise AssertionError("25 MB were taken for a client that does not read")
