"""Messages to WebSocket clients through API Gateway's `@connections`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import ClientError, HTTPClientError
from tidings.core.connections import Outcome

from .weather import is_busy, status_of, translated

if TYPE_CHECKING:
    from .signed_http import SignedHttp

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
            if status_of(error) == _GONE:
                return Outcome.GONE
            if is_busy(error) or status_of(error) >= _FAULT:
                return Outcome.BUSY
            raise
        except HTTPClientError:
            return Outcome.BUSY
        return Outcome.SENT

    def close(self, connection_id: str) -> None:
        try:
            with translated():
                self._http.ask("DELETE", _CONNECTIONS, connection_id)
        except ClientError as error:
            if status_of(error) != _GONE:
                raise
