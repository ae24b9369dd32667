"""Messages to WebSocket clients through API Gateway's `@connections`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import ClientError, HTTPClientError
from tidings.aws.gateway.sigv4_client import NOT_SENT
from tidings.aws.runtime.aws_errors import is_busy, status_of, translated
from tidings.core.websocket.connections import Outcome

if TYPE_CHECKING:
    from tidings.aws.gateway.sigv4_client import SignedHttp

_CONNECTIONS = "@connections"
_GONE = 410
_FAULT = 500


class ApiGatewaySockets:
    """Implements `Sockets`."""

    def __init__(self, http: SignedHttp) -> None:
        self._http = http

    def send(self, connection_id: str, frame: str) -> Outcome:
        try:
            self._http.ask("POST", _CONNECTIONS, connection_id, body=frame.encode())
        except ClientError as error:
            return _outcome_of(error)
        except NOT_SENT:
            return Outcome.BUSY
        except HTTPClientError:
            return Outcome.UNKNOWN
        return Outcome.SENT

    def close(self, connection_id: str) -> None:
        try:
            with translated():
                self._http.ask("DELETE", _CONNECTIONS, connection_id)
        except ClientError:
            return  # gone, or never there: there is nothing to close


def _outcome_of(refusal: ClientError) -> Outcome:
    """A fault may come after the message was passed on; a throttle comes before."""
    if is_busy(refusal):
        return Outcome.BUSY
    if status_of(refusal) == _GONE:
        return Outcome.GONE
    return Outcome.UNKNOWN if status_of(refusal) >= _FAULT else Outcome.REFUSED
