"""
Messages to WebSocket clients through API Gateway's `@connections`.

A call through a boto3 client takes 1.1 ms of CPU, whatever its size; here it takes 0.1 ms
(bench/push.py).
"""

from __future__ import annotations

import time
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from botocore.exceptions import NoCredentialsError, NoRegionError
from botocore.session import Session

from tidings.aws.gateway.http_client import Answer, Failure, Host
from tidings.aws.runtime.aws_errors import THROTTLES
from tidings.aws.runtime.signatures import Signer
from tidings.core.errors import Unavailable
from tidings.core.websocket.connections import Outcome
from tidings.core.websocket.send import Close, Send, Turn, Window

if TYPE_CHECKING:
    from collections.abc import Iterable

    from botocore.credentials import ReadOnlyCredentials

    from tidings.core.websocket.send import Request, Steps

_REFUSED, _GONE, _THROTTLED, _FAULT = 300, 410, 429, 500


class ApiGatewaySockets:
    """
    Implements `Sockets`, and with `exchange` `Exchange`.

    Region and credentials come from the environment, as botocore reads it. *timeout_s* and
    *ca_file* are passed to `Host`.
    """

    def __init__(self, url: str, timeout_s: float, ca_file: str | None = None) -> None:
        self._host = Host(url, timeout_s, ca_file)
        self._path = f"{urlsplit(url).path.rstrip('/')}/@connections/"
        self._session = Session()
        self._window = Window()

    def send(self, connection_id: str, frame: str) -> Outcome:
        outcome = self._ask(Send(connection_id, frame))
        return Outcome.BUSY if outcome is Outcome.THROTTLED else outcome

    def close(self, connection_id: str) -> None:
        if self._ask(Close(connection_id)) is not Outcome.SENT:
            raise Unavailable(f"connection {connection_id} may not be closed")

    def exchange(self, deliveries: Iterable[Steps]) -> None:
        credentials, turn = self._credentials(), Turn(deliveries, self._window)
        with self._host.requests() as requests:
            while True:
                now_ms = _now_ms()
                while (task := turn.next(now_ms)) is not None:
                    requests.ask(task, self._request(task.request, credentials))
                if turn.done:
                    break
                due_ms = turn.due_ms(now_ms)
                timeout_s = None if due_ms is None else max(0, due_ms - now_ms) / 1000
                for task, answer in requests.answers(timeout_s):
                    turn.answered(task, _outcome_of(task.request, answer), _now_ms())
        if turn.errors:
            raise turn.errors[0]

    def _ask(self, request: Request) -> Outcome:
        with self._host.requests() as requests:
            requests.ask(None, self._request(request, self._credentials()))
            while True:
                for _, answer in requests.answers(None):
                    return _outcome_of(request, answer)

    def _request(self, request: Request, credentials: ReadOnlyCredentials) -> bytes:
        path = self._path + quote(request.connection_id, safe="")
        if isinstance(request, Close):
            return self._signer.head(credentials, "DELETE", path, b"")
        body = request.message.encode()
        return self._signer.head(credentials, "POST", path, body) + body

    def _credentials(self) -> ReadOnlyCredentials:
        credentials = self._session.get_credentials()
        if credentials is None:
            raise NoCredentialsError
        return credentials.get_frozen_credentials()

    @cached_property
    def _signer(self) -> Signer:
        region: str | None = self._session.get_config_variable("region")
        if region is None:
            raise NoRegionError
        return Signer(self._host.name, region, "execute-api")


def _outcome_of(request: Request, answer: Answer | Failure) -> Outcome:
    """
    Return the outcome. A fault may follow the delivery of the message; a throttle precedes it.
    """
    if answer is Failure.NOT_SENT:
        return Outcome.BUSY
    if not isinstance(answer, Answer):
        return Outcome.UNKNOWN
    if answer.status == _THROTTLED or answer.error in THROTTLES:
        return Outcome.THROTTLED
    if answer.status >= _FAULT:
        return Outcome.UNKNOWN
    if answer.status < _REFUSED or isinstance(request, Close):
        return Outcome.SENT  # a refused close means that the client is gone, or never existed
    return Outcome.GONE if answer.status == _GONE else Outcome.REFUSED


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
