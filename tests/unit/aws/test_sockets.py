"""Messages through `@connections`: how they are signed, and what any answer or none means."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import boto3
import pytest

from tests.certificates import write_authority
from tests.contract.answering import Answer, answering
from tests.fakes import MemoryConnections, MemoryInbox, MemoryRegistry, MemorySubscriptions
from tests.fakes.runtime import runtime_of
from tests.unit.core.scene import one_by_one
from tidings.aws.effects import now_ms, sleep_ms
from tidings.aws.sockets import ApiGatewaySockets
from tidings.core.errors import Unavailable
from tidings.core.websocket.connections import Connection, Outcome
from tidings.core.websocket.send import Delivery

TIMEOUT_S = 0.3  # for tests that wait for it; others use far more than a busy machine needs
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
Talk = Callable[[socket.socket, int], None]


pytestmark = pytest.mark.usefixtures("account")


class Feed:
    """The core's delivery over *sockets*, to connections that are known."""

    def __init__(self, sockets: ApiGatewaySockets) -> None:
        self.known = MemoryConnections(MemoryInbox(), MemorySubscriptions(), MemoryRegistry())
        self.counted: Counter[str] = Counter()
        self.delivery = Delivery(
            sockets=sockets,
            connections=self.known,
            runtime=runtime_of(now_ms, sleep=sleep_ms, count=self._count),
            exchange=sockets.exchange,
        )

    def send(self, *names: str, messages: Sequence[str] = ("{}",)) -> list[str]:
        """Return the connections that were lost."""
        for name in names:
            self.known.open(Connection(name, 0))
        return sorted(self.delivery.send_each(dict.fromkeys(names, messages), one_by_one))

    def _count(self, metric: str, value: int) -> None:
        self.counted[metric] += value


def feed(url: str, ca_file: str | None = None, timeout_s: float = 20) -> Feed:
    return Feed(ApiGatewaySockets(url, timeout_s, ca_file))


class Talking:
    """A server that does with each connection, the first having the number 0, what *talk* does."""

    def __init__(self, talk: Talk, trust: ssl.SSLContext | None = None) -> None:
        self._talk, self._trust = talk, trust
        self.opened, self.closed = 0, threading.Semaphore(0)
        self._server = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []

    @property
    def url(self) -> str:
        name = "https://localhost" if self._trust else "http://127.0.0.1"
        return f"{name}:{self._server.getsockname()[1]}"

    def accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
                if self._trust is not None:
                    connection = self._trust.wrap_socket(connection, server_side=True)
            except ssl.SSLError:
                continue  # a client that does not trust us
            except OSError:
                return
            self._sockets.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection, self.opened))
            self.opened += 1
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        with connection, suppress(OSError):  # the client is gone
            self._talk(connection, number)
        self.closed.release()

    def stop(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for connection in self._sockets:
            with suppress(OSError):  # it is closed
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()


@contextmanager
def talking(talk: Talk, trust: ssl.SSLContext | None = None) -> Iterator[Talking]:
    server = Talking(talk, trust)
    accepting = threading.Thread(target=server.accept)
    accepting.start()
    try:
        yield server
    finally:
        server.stop()
        accepting.join()


def read_request(connection: socket.socket) -> bytes:
    """Return one request; it is empty at the end."""
    data, size = bytearray(), 0
    while not size or len(data) < size:
        part = connection.recv(65_536)
        if not part:
            return b""
        data += part
        if not size and (end := data.find(b"\r\n\r\n")) >= 0:
            length = data[:end].partition(b"content-length: ")[2].partition(b"\r\n")[0]
            size = end + 4 + int(length)
    return bytes(data)


def says(*answers: bytes, forever: bytes = b"") -> Talk:
    """Send one answer for each request, then *forever* for all others, or close."""

    def talk(connection: socket.socket, number: int) -> None:
        for answer in answers:
            if not read_request(connection):
                return
            connection.sendall(answer)
        while forever and read_request(connection):
            connection.sendall(forever)

    return talk


def _silent(connection: socket.socket, number: int) -> None:
    while read_request(connection):
        pass


class TestRequests:
    def test_a_message_is_posted_to_its_connection(self) -> None:
        """The body is UTF-8 text; the id is escaped in the path."""
        with answering(Answer()) as server:
            sent = ApiGatewaySockets(server.url, 20).send("L0SM9cOF=", '{"ä":1}')
        assert sent is Outcome.SENT
        assert [asked.body for asked in server.asked] == ['{"ä":1}'.encode()]
        assert server.asked[0].path == "/@connections/L0SM9cOF%3D"

    @pytest.mark.parametrize("token", ["", "session/token=="])
    def test_it_is_signed_as_boto3_signs(self, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Within the same second the same signature, for an id that has to be escaped."""
        if token:
            monkeypatch.setenv("AWS_SESSION_TOKEN", token)
        with answering(Answer()) as server:
            session = boto3.Session()  # boto3's own keeps the keys of an earlier test
            client = session.client("apigatewaymanagementapi", endpoint_url=f"{server.url}/dev")
            for _ in range(20):
                client.post_to_connection(ConnectionId="a/b+c=", Data="{}")
                ApiGatewaySockets(f"{server.url}/dev", 20).send("a/b+c=", "{}")
                theirs, ours = server.asked[-2:]
                if theirs.headers["X-Amz-Date"] == ours.headers["x-amz-date"]:
                    break
        assert (ours.method, ours.path, ours.body) == (theirs.method, theirs.path, theirs.body)
        assert ours.headers["authorization"] == theirs.headers["Authorization"]
        assert ours.headers.get("x-amz-security-token", "") == token

    @pytest.mark.parametrize("status", [400, 403])
    def test_closing_what_is_not_there_is_fine(self, status: int) -> None:
        """Others must not wait for it."""
        with answering(Answer(status, error="ForbiddenException")) as server:
            ApiGatewaySockets(server.url, 20).close("c1")
        assert len(server.asked) == 1

    def test_closing_twice_is_fine(self) -> None:
        """The second time it is gone."""
        with answering(Answer(204), Answer(410, error="GoneException")) as server:
            sockets = ApiGatewaySockets(server.url, 20)
            for _ in range(2):
                sockets.close("c1")
        assert [asked.method for asked in server.asked] == ["DELETE", "DELETE"]

    @pytest.mark.parametrize("status", [429, 500])
    def test_who_may_not_be_closed_is_told(self, status: int) -> None:
        """The core repeats it."""
        with answering(Answer(status)) as server, pytest.raises(Unavailable):
            ApiGatewaySockets(server.url, 20).close("c1")


class TestOutcomes:
    @pytest.mark.parametrize(
        ("status", "error", "outcome"),
        [
            (410, "GoneException", Outcome.GONE),
            (429, "LimitExceededException", Outcome.BUSY),
            (429, "", Outcome.BUSY),
            (400, "ThrottlingException:http://internal.amazon.com/", Outcome.BUSY),
            (500, "InternalServerError", Outcome.UNKNOWN),
            (504, "GatewayTimeout", Outcome.UNKNOWN),
            (400, "BadRequestException", Outcome.REFUSED),
            (403, "ForbiddenException", Outcome.REFUSED),
            (413, "PayloadTooLargeException", Outcome.REFUSED),
        ],
    )
    def test_refusals_are_outcomes(self, status: int, error: str, outcome: Outcome) -> None:
        """Asked once: the core counts the attempts."""
        with answering(Answer(status, error=error)) as server:
            assert ApiGatewaySockets(server.url, 20).send("c1", "{}") is outcome
        assert len(server.asked) == 1

    def test_a_refused_connect_is_busy(self, closed_address: str) -> None:
        """Nothing was sent, so it may be repeated; the same holds for an unknown host name."""
        assert ApiGatewaySockets(closed_address, 1).send("c1", "{}") is Outcome.BUSY
        assert ApiGatewaySockets("http://nobody.invalid", 1).send("c1", "{}") is Outcome.BUSY

    def test_a_connect_that_is_never_answered_is_busy(self) -> None:
        """A full backlog takes no more; the time for it is bounded."""
        with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
            address = full.getsockname()
            waiting = [socket.socket() for _ in range(8)]
            for each in waiting:
                each.setblocking(False)
                each.connect_ex(address)
            began_s = time.monotonic()
            sockets = ApiGatewaySockets(f"http://127.0.0.1:{address[1]}", TIMEOUT_S)
            assert sockets.send("c1", "{}") is Outcome.BUSY
            assert time.monotonic() - began_s >= TIMEOUT_S
            for each in waiting:
                each.close()

    @pytest.mark.parametrize(
        "answer",
        [
            b"",
            b"HTTP/1.1 200 OK\r\nContent-Le",
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{",
            b"HTTP/1.1 100 Continue\r\n\r\n",
            b"SSH-2.0-OpenSSH\r\n\r\n",
        ],
    )
    def test_a_connection_that_ends_before_its_answer_is_unknown(self, answer: bytes) -> None:
        """The request was read before, and is sent once: it may still be delivered."""
        with talking(says(answer)) as server:
            assert ApiGatewaySockets(server.url, 20).send("c1", "{}") is Outcome.UNKNOWN
            assert server.opened == 1

    def test_silence_is_unknown(self) -> None:
        """The outcome comes after the time-out, and not earlier."""
        with talking(_silent) as server:
            began_s = time.monotonic()
            sent = ApiGatewaySockets(server.url, TIMEOUT_S).send("c1", "{}")
            assert sent is Outcome.UNKNOWN
            assert time.monotonic() - began_s >= TIMEOUT_S

    @pytest.mark.parametrize(
        "answer",
        [
            b"HTTP/1.1 200 OK\r\nX-Amzn-RequestId: r\r\nContent-Length: 2\r\n\r\n{}",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
        ],
    )
    def test_an_answer_in_pieces_is_an_answer(self, answer: bytes) -> None:
        """An answer of any length may arrive byte by byte."""

        def talk(connection: socket.socket, number: int) -> None:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while read_request(connection):
                for at in range(len(answer)):
                    connection.sendall(answer[at : at + 1])
                    time.sleep(0.0005)

        with talking(talk) as server:
            sockets = ApiGatewaySockets(server.url, 20)
            assert [sockets.send("c1", "{}") for _ in range(2)] == [Outcome.SENT] * 2
            assert server.opened == 1

    def test_a_long_message_is_sent_whole(self) -> None:
        """More than a socket takes at once, to one that reads slowly."""
        bodies: list[bytes] = []

        def talk(connection: socket.socket, number: int) -> None:
            time.sleep(0.1)
            bodies.append(read_request(connection).partition(b"\r\n\r\n")[2])
            connection.sendall(OK)

        message = "ä" * 3_000_000
        with talking(talk) as server:
            assert ApiGatewaySockets(server.url, 5).send("c1", message) is Outcome.SENT
        assert bodies == [message.encode()]


class TestAddresses:
    """A name may have several, as `localhost` has ::1 and 127.0.0.1."""

    def _addresses(self, monkeypatch: pytest.MonkeyPatch, *ports: int) -> None:
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in ports]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)

    def test_one_that_refuses_after_connect_has_returned_is_not_the_last(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with talking(says(forever=OK)) as server, socket.create_server(("127.0.0.1", 0)) as bound:
            closed = bound.getsockname()[1]
            bound.close()
            port = int(server.url.rpartition(":")[2])
            for ports in ((closed, port), (closed, closed, port)):
                self._addresses(monkeypatch, *ports)
                sockets = ApiGatewaySockets(server.url, 20)
                for _ in range(2):
                    assert sockets.send("c1", "{}") is Outcome.SENT

    def test_each_is_tried_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with socket.create_server(("127.0.0.1", 0)) as bound:
            closed = bound.getsockname()[1]
        self._addresses(monkeypatch, closed, closed)
        assert ApiGatewaySockets("http://127.0.0.1", 20).send("c1", "{}") is Outcome.BUSY


class TestKeptConnections:
    def test_they_are_kept_while_they_are_fresh(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The other side may have closed one that was idle, and a frozen sandbox would not see."""
        now_s = time.monotonic()
        with answering(Answer()) as server:
            sockets = ApiGatewaySockets(server.url, 20)
            for idle_s in (0.0, 1.0, 30.0):
                now_s += idle_s
                monkeypatch.setattr(time, "monotonic", partial(float, now_s))
                assert sockets.send("c1", "{}") is Outcome.SENT
        first, second, third = (asked.port for asked in server.asked)
        assert first == second != third

    @pytest.mark.parametrize(
        "answer", [OK, OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")]
    )
    def test_what_the_other_side_closed_is_not_sent_on(self, answer: bytes) -> None:
        """A connection that was closed between two batches, announced or not, costs no second
        attempt."""
        with talking(says(answer)) as server:
            sockets = ApiGatewaySockets(server.url, 20)
            for _ in range(3):
                assert sockets.send("c1", "{}") is Outcome.SENT
                assert server.closed.acquire(timeout=60)
            assert server.opened == 3

    @pytest.mark.parametrize("more", [OK, b"HTTP/1.1 200", b"?"])
    def test_one_that_says_more_than_it_is_asked_is_left(self, more: bytes) -> None:
        """Otherwise the next message would get the answer to another one."""
        with talking(says(forever=OK + more)) as server:
            sockets = ApiGatewaySockets(server.url, 20)
            for _ in range(2):
                assert sockets.send("c1", "{}") is Outcome.SENT
            assert server.opened == 2


class TestMany:
    @pytest.mark.timeout(30)
    def test_nothing_to_send_is_done_at_once(self, closed_address: str) -> None:
        """Most pages match no connection."""
        assert feed(closed_address).send() == []

    def test_three_hundred_at_once(self) -> None:
        """Each client gets its messages in order, over fewer connections than there are clients."""
        names = [f"c{number}" for number in range(300)]
        messages = [f"m{number}" for number in range(3)]
        got: dict[str, list[str]] = {name: [] for name in names}

        def talk(connection: socket.socket, number: int) -> None:
            while request := read_request(connection).decode():
                head, _, body = request.partition("\r\n\r\n")
                got[head.split(" ", 2)[1].rpartition("/")[2]].append(body)
                connection.sendall(OK)

        with talking(talk) as server:
            sender = feed(server.url)
            assert sender.send(*names, messages=messages) == []
            assert server.opened <= 256
        assert got == dict.fromkeys(names, messages)
        assert sender.counted == {"FramesSent": 900}

    def test_one_that_is_never_answered_holds_up_no_other(self) -> None:
        """It is closed after its time-out; all others were sent in the meantime."""
        answered: list[tuple[str, str]] = []

        def talk(connection: socket.socket, number: int) -> None:
            while request := read_request(connection).decode():
                method, path, _ = request.split(" ", 2)
                name = path.rpartition("/")[2]
                if (method, name) != ("POST", "c7"):
                    answered.append((method, name))
                    connection.sendall(OK)

        with talking(talk) as server:
            sender = feed(server.url, timeout_s=2)
            assert sender.send(*(f"c{number}" for number in range(100))) == ["c7"]
        assert len(answered) == 100 and answered[-1] == ("DELETE", "c7")
        assert sender.known.get("c7") is None and sender.known.get("c8")
        assert sender.counted == {"FramesSent": 99, "SendsUnknown": 1, "ConnectionsClosed": 1}

    def test_each_trouble_is_its_clients_own(self) -> None:
        """Gone, refused, faulty, throttled once, and none."""
        seen: Counter[str] = Counter()

        def answer(name: str, method: str) -> bytes:
            seen[name] += 1
            if method == "DELETE":
                return b"HTTP/1.1 204 No Content\r\n\r\n"
            status = {"gone": 410, "refused": 403, "faulty": 502}.get(name, 200)
            if name == "throttled" and seen[name] < 3:
                status = 429
            return b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % status

        def talk(connection: socket.socket, number: int) -> None:
            while request := read_request(connection).decode():
                method, path, _ = request.split(" ", 2)
                connection.sendall(answer(path.rpartition("/")[2], method))

        with talking(talk) as server:
            sender = feed(server.url)
            lost = sender.send(
                "gone", "refused", "faulty", "throttled", "fine", messages=["1", "2"]
            )
        assert lost == ["faulty", "gone", "refused"]
        assert seen == {"gone": 1, "refused": 2, "faulty": 2, "throttled": 4, "fine": 2}
        assert sender.counted == {
            "FramesSent": 4,
            "ConnectionsGone": 1,
            "SendsRefused": 1,
            "SendsUnknown": 1,
            "ConnectionsClosed": 2,
        }

    def test_a_limit_is_found_and_kept_to(self) -> None:
        """The service refuses above it; no connection is closed, and all are served."""
        lock, tokens, filled_s = threading.Lock(), 50.0, time.monotonic()
        refused = 0

        def talk(connection: socket.socket, number: int) -> None:
            nonlocal tokens, filled_s, refused
            while read_request(connection):
                with lock:
                    now_s = time.monotonic()
                    tokens, filled_s = min(50.0, tokens + (now_s - filled_s) * 500), now_s
                    taken = tokens >= 1
                    tokens -= taken
                    refused += not taken
                connection.sendall(OK if taken else OK.replace(b"200 OK", b"429 Slow"))

        with talking(talk) as server:
            sender = feed(server.url)
            assert sender.send(*(f"c{number}" for number in range(1_000))) == []
        assert refused
        assert sender.counted == {"FramesSent": 1_000}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def trust(authority: Path) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(authority)
    return made


class TestEncrypted:
    def test_messages_are_sent(self, authority: Path, trust: ssl.SSLContext) -> None:
        """Long ones too; connections are kept from one turn to the next."""
        with talking(says(forever=OK), trust) as server:
            sender = feed(server.url, str(authority))
            for _ in range(2):
                assert sender.send(*(f"c{at}" for at in range(40)), messages=["x" * 100_000]) == []
            assert 0 < server.opened <= 40

    def test_a_certificate_of_a_stranger_is_not_trusted(self, trust: ssl.SSLContext) -> None:
        """Nothing is sent to it."""
        with talking(says(forever=OK), trust) as server:
            assert ApiGatewaySockets(server.url, 20).send("c1", "{}") is Outcome.BUSY
            assert server.opened == 0

    def test_what_the_other_side_closed_is_not_sent_on(
        self, authority: Path, trust: ssl.SSLContext
    ) -> None:
        with talking(says(OK), trust) as server:
            sockets = ApiGatewaySockets(server.url, 20, str(authority))
            for _ in range(3):
                assert sockets.send("c1", "{}") is Outcome.SENT
                assert server.closed.acquire(timeout=60)
            assert server.opened == 3

    def test_a_handshake_that_is_never_answered_is_busy(self, authority: Path) -> None:
        """Nothing of the message was sent."""

        def talk(connection: socket.socket, number: int) -> None:
            while connection.recv(65_536):
                pass

        with talking(talk) as server:
            url = server.url.replace("http://127.0.0.1", "https://localhost")
            sockets = ApiGatewaySockets(url, TIMEOUT_S, str(authority))
            assert sockets.send("c1", "{}") is Outcome.BUSY
