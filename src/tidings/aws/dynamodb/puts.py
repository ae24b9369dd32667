"""Conditional puts of many items, with one request per item, sent without boto3.

DynamoDB has no batches with conditions at the same price (docs/adr/0037), so many requests run
concurrently. Because of the conditions, a request that is repeated or executed late does no harm.

A PutItem by boto3 takes 1.4 ms of CPU; by this module it takes 0.1 ms. The HTTP clients urllib3 and
http.client alone take at least 200 us per request. To write to the socket, to read, and to check
two headers, as this module does, takes 30 us.

Functions registered for botocore's hooks are still called: `provide-client-params` may change the
parameters, `before-send` may answer in place of DynamoDB, and `after-call` receives the answer.
"""

from __future__ import annotations

import json
import socket
import ssl
import time
from binascii import b2a_base64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from botocore.awsrequest import AWSPreparedRequest
from botocore.compat import HTTPHeaders
from botocore.exceptions import (
    ClientError,
    EndpointConnectionError,
    HTTPClientError,
    NoCredentialsError,
)

from tidings.aws.clients import ConditionFailed, ca_certs, translate_errors
from tidings.aws.dynamodb.table import conditional
from tidings.aws.effects import Threads
from tidings.aws.signed_http import IdleConnections, PersistentConnection, Signer
from tidings.core.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from botocore.credentials import Credentials
    from mypy_boto3_dynamodb import DynamoDBClient

    from tidings.aws.dynamodb.attributes import Item
    from tidings.core.effects import Sleep


_UNDER_WAY = 24  # concurrent puts: 6,000 a second at 4 ms each; with more, a put takes more CPU
_UNANSWERED_MAX = 2  # maximum attempts without an answer; 3 s each fit a follower's time limit
_ATTEMPTS_MAX = 8  # maximum attempts; the pauses, 6 s in total, fit that time limit too
_FIRST_WAIT_MS = 50  # the pause after the first attempt; each later pause is twice as long
_RETURN_OLD = {"ReturnValues": "ALL_OLD"}  # DynamoDB returns the old item free of charge


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition that the existing item must meet; otherwise the write is refused."""

    expression: str
    values: Item = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Put:
    item: Item
    condition: Condition


class Puts:
    """A writer of items to one table. Callers must not put the same item twice concurrently."""

    def __init__(self, client: DynamoDBClient, table: str, sleep: Sleep) -> None:
        self._requests, self._table, self._sleep = Requests(client), table, sleep
        self._threads = Threads(_UNDER_WAY)

    def __call__(self, puts: Sequence[Put]) -> list[bool]:
        """Return for each put whether its item is stored now, by this call or by another one.

        Raises:
            Unavailable: the result of some puts is unknown; other puts may have succeeded.
        """
        return [done for done, _ in self._each(puts, {})]

    def replace(self, puts: Sequence[Put]) -> list[Item | None]:
        """Return for each put the replaced item; {} if none existed, None if the put was refused.

        Raises:
            Unavailable: see `__call__`.
        """
        return [item for _, item in self._each(puts, _RETURN_OLD)]

    def _each(
        self, puts: Sequence[Put], return_values: Mapping[str, str]
    ) -> list[tuple[bool, Item | None]]:
        answers: list[tuple[bool, Item | None]] = [(False, None)] * len(puts)

        def each(first: int) -> None:
            for at in range(first, len(puts), _UNDER_WAY):
                answers[at] = self._put(puts[at], return_values)

        self._threads(each, range(min(len(puts), _UNDER_WAY)))
        return answers

    def _put(self, put: Put, return_values: Mapping[str, str]) -> tuple[bool, Item | None]:
        """Return True if the item of *put* is stored now, and the item that it replaced.

        The replaced item is {} if no item existed, and None if the condition did not hold.
        """
        condition = conditional(put.condition.expression, put.condition.values)
        params = {"TableName": self._table, "Item": put.item, **condition, **return_values}
        unanswered = 0
        for attempt in range(_ATTEMPTS_MAX):
            if attempt:
                self._sleep(_FIRST_WAIT_MS << (attempt - 1))
            try:
                with translate_errors():
                    answer = self._requests.ask("PutItem", params)
            except ConditionFailed as failed:
                return failed.item == put.item, None
            except Unavailable as error:
                unanswered += isinstance(error.__cause__, HTTPClientError)
                if unanswered == _UNANSWERED_MAX:
                    raise
                refused = error
            else:
                return True, answer.get("Attributes", {})
        raise refused


_VERSION = "DynamoDB_20120810"
_CONTENT = "application/x-amz-json-1.0"
_OK = 200


class Requests:
    """A sender of requests, without retries; *client* has the endpoint, credentials and limits."""

    def __init__(self, client: DynamoDBClient) -> None:
        meta: Any = client.meta
        self._url, self._events = meta.endpoint_url, meta.events
        self._signer = Signer(urlsplit(self._url).netloc, meta.region_name, "dynamodb")
        self._connections = KeptConnections(
            self._url, meta.config.connect_timeout, meta.config.read_timeout
        )
        # Use the client's credentials, because the process's session has neither an operator's
        # profile nor those of an endpoint.
        self._credentials = _credentials_of(client)

    def ask(self, operation: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the answer as JSON, with binary values in base64.

        Raises:
            ClientError: DynamoDB refused the request; the error is the same as boto3's.
            EndpointConnectionError, HTTPClientError: see `KeptConnections.ask`.
        """
        name, model, context = f"dynamodb.{operation}", None, dict[str, Any]()
        self._events.emit(
            f"provide-client-params.{name}", params=params, model=model, context=context
        )
        body = json.dumps(params, separators=(",", ":"), default=_text_of).encode()
        answer = self._send(operation, body)
        parsed: dict[str, Any] = json.loads(answer.body or "{}")
        if answer.status != _OK:
            raise _refusal(operation, answer.status, parsed)
        self._events.emit(
            f"after-call.{name}", parsed=parsed, http_response=None, model=model, context=context
        )
        return parsed

    def _send(self, operation: str, body: bytes) -> Answer:
        target = f"{_VERSION}.{operation}"
        if self._credentials is None:
            raise NoCredentialsError
        credentials = self._credentials.get_frozen_credentials()
        headers = (("content-type", _CONTENT), ("x-amz-target", target))
        head = self._signer.head(credentials, "POST", "/", body, headers)
        shown = HTTPHeaders()
        shown["X-Amz-Target"] = target
        request = AWSPreparedRequest("POST", f"{self._url}/", shown, body, stream_output=False)
        hook = f"before-send.dynamodb.{operation}"
        _, given = self._events.emit_until_response(hook, request=request)
        if given is not None:
            return Answer(given.status_code, given.content)
        return self._connections.ask(head, body)


def _credentials_of(client: Any) -> Credentials | None:
    """Return the credentials with which *client* signs.

    The method of *client* is private, but boto3 also calls it, for s3transfer.
    """
    credentials: Credentials | None = client._get_credentials()
    return credentials


def _text_of(binary: bytes) -> str:
    """Return *binary* in base64, which is the format of binary values in DynamoDB's API."""
    return b2a_base64(binary, newline=False).decode()


def _refusal(operation: str, status: int, parsed: dict[str, Any]) -> ClientError:
    code = str(parsed.get("__type", "Unknown")).rpartition("#")[2].partition(":")[0]
    message = str(parsed.get("message", parsed.get("Message", "")))
    raised: Any = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status},
        **({"Item": parsed["Item"]} if "Item" in parsed else {}),
    }
    return ClientError(raised, operation)


_READ_BYTES = 65_536
_HEAD_BYTES_MAX = 65_536  # far above the size of DynamoDB's heads
_END = b"\r\n\r\n"
_LENGTH = b"\r\ncontent-length:"
_CLOSES = b"\r\nconnection: close"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    closes: bool = False


@dataclass(slots=True)
class KeptConnections:
    """Persistent connections to the host of *url*, for several threads.

    Certificates are verified with the authorities that botocore uses.
    """

    url: str
    connect_s: float
    read_s: float
    _idle: IdleConnections[PersistentConnection] = field(default_factory=IdleConnections)
    _trust: ssl.SSLContext | None = None

    def ask(self, head: bytes, body: bytes) -> Answer:
        """Send a request once.

        Raises:
            EndpointConnectionError: the host could not be reached; nothing was sent.
            HTTPClientError: no answer arrived; the request may have been executed.
        """
        connection = self._idle.take() or self._connect()
        try:
            connection.socket.sendall(head + body)
            answer = _answer(connection.socket)
        except (OSError, ValueError) as error:
            connection.socket.close()
            raise HTTPClientError(error=error) from error
        if answer.closes:
            connection.socket.close()
        else:
            connection.used_s = time.monotonic()
            self._idle.keep(connection)
        return answer

    def _connect(self) -> PersistentConnection:
        try:
            return PersistentConnection(self._open_socket(), time.monotonic())
        except OSError as error:
            raise EndpointConnectionError(endpoint_url=self.url, error=error) from error

    def _open_socket(self) -> socket.socket:
        parts = urlsplit(self.url)
        host, secure = parts.hostname or "", parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        made = socket.create_connection((host, port), self.connect_s)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if secure:
            if self._trust is None:
                self._trust = ssl.create_default_context(cafile=ca_certs())
            made = self._trust.wrap_socket(made, server_hostname=host)
        made.settimeout(self.read_s)
        return made


def _answer(connection: socket.socket) -> Answer:
    received = _receive(connection)
    data = b""
    while (end := data.find(_END)) < 0 or data[9:10] == b"1":
        if end >= 0:
            data = data[end + len(_END) :]  # skip an interim answer, which the final answer follows
        elif len(data) > _HEAD_BYTES_MAX:
            raise ValueError("the head of an answer is too long")
        else:
            data += next(received)
    head, body = data[:end].lower(), data[end + len(_END) :]
    at = head.find(_LENGTH)
    if not head.startswith(b"http/1.1 ") or at < 0:
        raise ValueError("an answer has no content-length")
    length = int(head[at + len(_LENGTH) :].partition(b"\r\n")[0])
    while len(body) < length:
        body += next(received)
    return Answer(int(head[9:12]), body, _CLOSES in head)


def _receive(connection: socket.socket) -> Iterator[bytes]:
    while part := connection.recv(_READ_BYTES):
        yield part
    raise ConnectionResetError("the connection ended before the answer did")
