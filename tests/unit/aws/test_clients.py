"""How the adapters handle failed answers: refusals, faults and silence."""

from __future__ import annotations

import socket
import threading
import time
from base64 import b64encode
from collections import Counter
from dataclasses import replace

import boto3
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import ReadOnlyCredentials
from botocore.exceptions import ClientError
from mypy_boto3_dynamodb import DynamoDBClient
from mypy_boto3_lambda import LambdaClient

from tests.contract.answering import Answer, answering
from tidings.aws import clients
from tidings.aws.dynamodb import tags as summaries
from tidings.aws.dynamodb.attributes import Item
from tidings.aws.dynamodb.connections import DynamoDBConnections, encode_connection
from tidings.aws.dynamodb.log import DynamoDBLog
from tidings.aws.dynamodb.state import DynamoDBState, encode_row, row_key
from tidings.aws.dynamodb.tags import DynamoDBTags
from tidings.aws.signed_http import Signer
from tidings.aws.wakeups import LambdaWaker
from tidings.core.changeagent.tag_index import Summary
from tidings.core.errors import Unavailable
from tidings.core.state.rows import NOTHING, Row
from tidings.core.websocket.connections import Connection
from tidings.core.websocket.session import State

ONCE = Config(connect_timeout=1, read_timeout=1, retries={"total_max_attempts": 1})
TWICE = Config(retries={"total_max_attempts": 2, "mode": "standard"})
CONNECTION = Connection("c1", 1_763_000_000_123)
ROWS = [Row(f"video/{number}", 1, 0, 1_763_000_000_123, "{}") for number in range(3)]
SUMMARIES = [Summary(number, number + 1, b"\0") for number in range(1, 4)]


pytestmark = pytest.mark.usefixtures("account")


class Waits(list[int]):
    """A `Sleep` that only writes down how long it would have taken."""

    def __call__(self, ms: int) -> None:
        self.append(ms)


def dynamodb(url: str, config: Config = ONCE) -> DynamoDBClient:
    return boto3.client("dynamodb", endpoint_url=url, config=config)


def plain(item: Item) -> Item:
    """Return *item* as it is sent, with binary values in base64."""
    return {
        name: {"B": b64encode(value["B"]).decode()} if "B" in value else value
        for name, value in item.items()
    }


def functions(url: str) -> LambdaClient:
    return boto3.client("lambda", endpoint_url=url, config=ONCE)


class TestDynamoDB:
    @pytest.mark.parametrize(
        ("status", "error"),
        [
            (500, "InternalServerError"),
            (503, "ServiceUnavailable"),
            (400, "ProvisionedThroughputExceededException"),
            (400, "ThrottlingException"),
            (400, "RequestLimitExceeded"),
        ],
    )
    def test_faults_and_throttling_are_unavailable(self, status: int, error: str) -> None:
        """A retry may help."""
        with answering(Answer(status, error=error)) as server, pytest.raises(Unavailable):
            DynamoDBLog(dynamodb(server.url), "log", "control").take("main")

    def test_silence_is_unavailable(self, closed_address: str) -> None:
        """No process listens on the port."""
        with pytest.raises(Unavailable):
            DynamoDBLog(dynamodb(closed_address), "log", "control").read("main", 0)

    @pytest.mark.parametrize("error", ["AccessDeniedException", "ResourceNotFoundException"])
    def test_our_mistakes_pass_through(self, error: str) -> None:
        """No retry cures a missing table or permission."""
        with answering(Answer(400, error=error)) as server, pytest.raises(ClientError, match=error):
            DynamoDBLog(dynamodb(server.url), "log", "control").take("main")

    def test_an_error_of_a_query_is_told_too(self) -> None:
        """Reading items raw leaves errors to botocore."""
        answer = Answer(400, error="ResourceNotFoundException")
        with answering(answer) as server, pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_ENDPOINT_URL", server.url)
            client = clients.dynamodb.__wrapped__()
            with pytest.raises(ClientError, match="ResourceNotFound"):
                DynamoDBLog(client, "log", "control").read("main", 0)


class TestLostAnswers:
    def test_an_update_that_finds_itself_counts(self) -> None:
        """The first attempt was written, its answer lost; the second finds our own item."""
        new = replace(CONNECTION, state=State.LIVE)
        found = encode_connection(replace(new, version=1))
        with answering(
            Answer(500, error="InternalServerError"),
            Answer(400, {"Item": found}, "ConditionalCheckFailedException"),
        ) as server:
            store = DynamoDBConnections(dynamodb(server.url, TWICE), "connections")
            assert store.update(CONNECTION, new)

    def test_an_update_that_finds_another_does_not(self) -> None:
        """The stored connection belongs to another runner, whether or not the request was
        retried."""
        found = encode_connection(replace(CONNECTION, runner="other", version=1))
        refused = Answer(400, {"Item": found}, "ConditionalCheckFailedException")
        with answering(Answer(500, error="InternalServerError"), refused) as server:
            store = DynamoDBConnections(dynamodb(server.url, TWICE), "connections")
            assert not store.update(CONNECTION, replace(CONNECTION, state=State.LIVE))


class TestPartialBatches:
    def test_what_was_refused_is_sent_again(self) -> None:
        """Only these items are sent again, after a pause."""
        items = [{"PutRequest": {"Item": summaries.encode("main", each)}} for each in SUMMARIES]
        waits = Waits()
        refused = [{"PutRequest": {"Item": plain(each["PutRequest"]["Item"])}} for each in items]
        with answering(Answer(body={"UnprocessedItems": {"state": refused[1:]}}), Answer()) as to:
            DynamoDBTags(dynamodb(to.url), "state", waits).write("main", SUMMARIES)
        sent = [asked.json["RequestItems"]["state"] for asked in to.asked]
        assert sent == [refused, refused[1:]]
        assert waits == [50]

    def test_it_gives_up_after_a_while(self) -> None:
        """Refused again and again with growing pauses: unavailable."""
        refused = [
            {"PutRequest": {"Item": plain(summaries.encode("main", each))}} for each in SUMMARIES
        ]
        waits = Waits()
        with answering(Answer(body={"UnprocessedItems": {"state": refused}})) as server:
            tags = DynamoDBTags(dynamodb(server.url), "state", waits)
            with pytest.raises(Unavailable, match="3 items"):
                tags.write("main", SUMMARIES)
        assert waits == [50, 100, 200, 400, 800, 1600, 3200]

    def test_keys_that_were_refused_are_asked_for_again(self) -> None:
        """Only these keys are requested again; the rows of the first answer are kept."""
        first, *others = [encode_row("main", each) for each in ROWS]
        keys = [row_key("main", each.key) for each in ROWS]
        cut = {"Responses": {"state": [first]}, "UnprocessedKeys": {"state": {"Keys": keys[1:]}}}
        waits = Waits()
        whole = Answer(body={"Responses": {"state": others}})
        with answering(Answer(body=cut), whole) as server:
            store = DynamoDBState(dynamodb(server.url), "state", waits)
            found = store.find("main", [each.key for each in ROWS])
        sent = [asked.json["RequestItems"]["state"]["Keys"] for asked in server.asked]
        assert found == list(ROWS)
        assert sent == [keys, keys[1:]]
        assert waits == [50]


class TestPuts:
    """Rows of the state, one request each, with answers in any order."""

    def test_what_was_refused_is_sent_again(self) -> None:
        """Only this row is sent again, after a pause, with its condition."""
        waits = Waits()
        busy = Answer(400, error="com.amazonaws.dynamodb#ThrottlingException")
        with answering(busy, Answer()) as server:
            state = DynamoDBState(dynamodb(server.url), "state", waits)
            assert state.write("main", ROWS) == [NOTHING] * len(ROWS)
        keys = Counter(asked.json["Item"]["key"]["S"] for asked in server.asked)
        assert sorted(keys.values()) == [1, 1, 2]
        assert keys.keys() == {each.key for each in ROWS}
        assert {asked.json["ConditionExpression"] for asked in server.asked} == {
            "attribute_not_exists(#page) OR #page < :page OR (#page = :page AND #slot < :slot)"
        }
        assert waits == [50]

    @pytest.mark.parametrize("error", ["ProvisionedThroughputExceededException", "Fault"])
    def test_it_gives_up_after_a_while(self, error: str) -> None:
        """Refused again and again with growing pauses: unavailable."""
        waits = Waits()
        answer = Answer(500 if error == "Fault" else 400, error=error)
        with answering(answer) as server:
            state = DynamoDBState(dynamodb(server.url), "state", waits)
            with pytest.raises(Unavailable, match=error):
                state.write("main", ROWS[:1])
        assert waits == [50, 100, 200, 400, 800, 1600, 3200]

    def test_our_mistakes_pass_through(self) -> None:
        """No retry cures a missing permission."""
        answer = Answer(400, error="AccessDeniedException")
        with answering(answer) as server, pytest.raises(ClientError, match="AccessDenied"):
            DynamoDBState(dynamodb(server.url), "state").write("main", ROWS)
        assert len(server.asked) == len(ROWS)

    def test_what_an_answer_that_was_lost_told_is_not_known(self) -> None:
        """The own row shows that the write succeeded, but the row that it replaced was in the lost
        answer.
        """
        lost = Answer(500, error="InternalServerError")
        code = "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException"
        for stands in (ROWS[0], ROWS[0]._replace(page=2)):
            found = {"Item": encode_row("main", stands)}
            with answering(lost, Answer(400, found, code)) as server:
                state = DynamoDBState(dynamodb(server.url), "state", Waits())
                assert state.write("main", ROWS[:1]) == [None]

    def test_silence_is_unavailable(self) -> None:
        """Two attempts get no answer; connections wait in a backlog."""
        short = ONCE.merge(Config(read_timeout=0.2))
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"http://127.0.0.1:{silent.getsockname()[1]}"
            waits = Waits()
            with pytest.raises(Unavailable):
                DynamoDBState(dynamodb(url, short), "state", waits).write("main", ROWS[:1])
        assert waits == [50]

    def test_an_answer_that_breaks_off_is_asked_for_again(self) -> None:
        """Half an answer is invalid, and so is one without its length."""
        halves = [
            b"HTTP/1.1 200 OK\r\nContent-Le",
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{",
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"SSH-2.0-OpenSSH\r\n\r\n",
        ]
        whole = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
        for half in halves:
            with socket.create_server(("127.0.0.1", 0)) as server:
                server.settimeout(60)
                talking = threading.Thread(target=_says, args=(server, half, whole))
                talking.start()
                client = dynamodb(f"http://127.0.0.1:{server.getsockname()[1]}")
                state = DynamoDBState(client, "state", Waits())
                assert state.write("main", ROWS[:1]) == [NOTHING]
                talking.join()

    def test_connections_are_kept_while_they_are_fresh(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The other side may have closed one that was idle, and a frozen sandbox would not see."""
        now_s = time.monotonic()
        with answering(Answer()) as server:
            state = DynamoDBState(dynamodb(server.url), "state")
            for idle_s in (0.0, 1.0, 30.0):
                now_s += idle_s
                monkeypatch.setattr(time, "monotonic", lambda at=now_s: at)
                state.write("main", ROWS[:1])
        first, second, third = (asked.port for asked in server.asked)
        assert first == second != third

    def test_they_are_signed_in_the_name_of_the_client(self) -> None:
        """An operator's profile, or a twin's key: not what the environment holds."""
        with answering(Answer()) as server:
            client = boto3.client(
                "dynamodb",
                endpoint_url=server.url,
                region_name="us-east-1",
                aws_access_key_id="theirs",
                aws_secret_access_key="secret",
            )
            DynamoDBState(client, "state").write("main", ROWS[:1])
        signed = server.asked[0].headers["authorization"]
        assert "Credential=theirs/" in signed and "/us-east-1/dynamodb/" in signed

    @pytest.mark.parametrize("token", ["", "session/token=="])
    def test_they_are_signed_as_botocore_signs(self, token: str) -> None:
        """In the same second they give the same signature and the same headers."""
        credentials = ReadOnlyCredentials("AKID", "secret/+", token or None)
        url, body = "https://dynamodb.eu-west-1.amazonaws.com", b'{"\xc3\xa4":1}'
        signer = Signer("dynamodb.eu-west-1.amazonaws.com", "eu-west-1", "dynamodb")
        for _ in range(20):
            named = (
                ("content-type", "application/x-amz-json-1.0"),
                ("x-amz-target", "DynamoDB_20120810.PutItem"),
            )
            head = signer.head(credentials, "POST", "/", body, named).decode()
            ours = dict(line.split(": ", 1) for line in head.split("\r\n")[1:-2])
            request = AWSRequest("POST", f"{url}/", data=body)
            request.headers["Content-Type"] = "application/x-amz-json-1.0"
            request.headers["X-Amz-Target"] = "DynamoDB_20120810.PutItem"
            SigV4Auth(credentials, "dynamodb", "eu-west-1").add_auth(request)
            if request.headers["X-Amz-Date"] == ours["x-amz-date"]:
                break
        assert head.startswith("POST / HTTP/1.1\r\n")
        assert ours["authorization"] == request.headers["Authorization"]
        assert ours["content-length"] == str(len(body))
        assert ours.get("x-amz-security-token", "") == token


def _says(server: socket.socket, *answers: bytes) -> None:
    """Send each answer on a connection of its own, and close it."""
    for answer in answers:
        connection, _ = server.accept()
        connection.recv(65_536)
        connection.sendall(answer)
        connection.close()


class TestWaker:
    def test_a_wake_up_names_function_and_feed(self) -> None:
        """Woken through the Lambda API, without waiting."""
        with answering(Answer(202)) as server:
            waker = LambdaWaker(functions(server.url), "tidings-dev-")
            waker.wake("main", "push")
            waker.replay("c1=")
        assert [asked.json for asked in server.asked] == [{"ring": "main"}, {"replay": "c1="}]
        names = [asked.path.split("/")[3] for asked in server.asked]
        assert names == ["tidings-dev-follow-push", "tidings-dev-replay"]
        kinds = {asked.headers["X-Amz-Invocation-Type"] for asked in server.asked}
        assert kinds == {"Event"}

    def test_a_wake_up_may_be_lost(self, closed_address: str) -> None:
        """If the function is unavailable, the sweep wakes it later."""
        LambdaWaker(functions(closed_address), "tidings-dev-").wake("main", "push")

    def test_our_mistakes_pass_through(self) -> None:
        """A missing function raises the error."""
        answer = Answer(404, error="ResourceNotFoundException")
        with answering(answer) as server, pytest.raises(ClientError, match="ResourceNotFound"):
            LambdaWaker(functions(server.url), "tidings-dev-").wake("main", "push")


def test_every_connection_trusts_the_certificates_that_botocore_trusts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """AWS_CA_BUNDLE also applies to requests that are sent without botocore."""
    for bundle in ("", "/etc/proxy.pem"):
        clients.session.cache_clear()
        monkeypatch.setenv("AWS_CA_BUNDLE", bundle)
        assert (clients.ca_certs() or "").endswith(bundle or "cacert.pem")
    clients.session.cache_clear()
