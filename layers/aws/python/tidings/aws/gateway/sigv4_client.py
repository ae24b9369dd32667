"""
Signed requests to one endpoint of AWS, for calls whose cost is felt.

A fan-out is a call for each listener. Through a client of boto3 such a call takes 1.1 ms of CPU,
whatever it holds; signed by botocore and sent by urllib3, which botocore is made of, 0.4 ms.
"""

from __future__ import annotations

import time
from functools import cached_property
from threading import Lock
from typing import Any
from urllib.parse import quote, urlsplit

import boto3
import urllib3
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    NoCredentialsError,
    NoRegionError,
)
from botocore.httpsession import get_cert_path

_REFUSED = 300
_ERROR_HEADER = "x-amzn-errortype"
_IDLE_S_MAX = 20.0  # the other side may close what is idle, and a frozen sandbox would not see it
NOT_SENT = (
    EndpointConnectionError,
    ConnectTimeoutError,
)  # what `ask` raises where none got through


class SignedHttp:
    """
    Asks once, over connections that are kept; several threads may ask at a time.

    Region and credentials come from the environment, as boto3 reads it.
    """

    def __init__(self, url: str, service: str, timeout: urllib3.Timeout, connections: int) -> None:
        self._url, self._service = urlsplit(url), service
        self._session = boto3.Session()
        self._timeout, self._connections = timeout, connections
        self._lock = Lock()
        self._pool, self._used_s = self._new_pool(), 0.0

    def ask(self, method: str, *path: str, body: bytes = b"") -> None:
        """
        *path* is what comes behind the endpoint's own, part by part.

        Raises:
            ClientError: the answer is a refusal, with its status and AWS's name for it.
            EndpointConnectionError, ConnectTimeoutError: no connection was made; nothing was sent.
            HTTPClientError: there is no answer; nobody knows what became of it.
        """
        target = "/".join((self._url.path.rstrip("/"), *(quote(part, safe="@") for part in path)))
        headers = self._signed(method, target, body)
        try:
            answer = self._fresh_pool().urlopen(method, target, body=body, headers=headers)
        except urllib3.exceptions.ConnectTimeoutError as error:
            raise ConnectTimeoutError(endpoint_url=self._origin, error=error) from error
        except urllib3.exceptions.NewConnectionError as error:
            raise EndpointConnectionError(endpoint_url=self._origin, error=error) from error
        except urllib3.exceptions.HTTPError as error:
            raise HTTPClientError(error=error) from error
        if answer.status >= _REFUSED:
            raise _refusal(method, answer)

    def _fresh_pool(self) -> urllib3.HTTPConnectionPool:
        """Connections that were idle for long are left: one that broke would lose its request."""
        now_s = time.monotonic()
        with self._lock:
            if now_s - self._used_s > _IDLE_S_MAX:
                self._pool = self._new_pool()
            self._used_s = now_s
            return self._pool

    def _new_pool(self) -> urllib3.HTTPConnectionPool:
        url = self._url.geturl()
        return urllib3.connection_from_url(
            url, timeout=self._timeout, maxsize=self._connections, retries=False, **self._trust()
        )

    def _signed(self, method: str, target: str, body: bytes) -> dict[str, str]:
        credentials = self._session.get_credentials()
        if credentials is None:
            raise NoCredentialsError
        signer = SigV4Auth(credentials.get_frozen_credentials(), self._service, self._region)
        request = AWSRequest(method, f"{self._origin}{target}", data=body)
        signer.add_auth(request)
        return dict(request.headers.items())

    @cached_property
    def _origin(self) -> str:
        return f"{self._url.scheme}://{self._url.netloc}"

    @cached_property
    def _region(self) -> str:
        if self._session.region_name is None:
            raise NoRegionError
        return self._session.region_name

    def _trust(self) -> dict[str, str | None]:
        if self._url.scheme != "https":
            return {}
        return {"cert_reqs": "CERT_REQUIRED", "ca_certs": get_cert_path(True)}


def _refusal(method: str, answer: urllib3.BaseHTTPResponse) -> ClientError:
    """As boto3 would have raised it."""
    code = answer.headers.get(_ERROR_HEADER, "Unknown").partition(":")[0]
    message = answer.data.decode(errors="replace")
    raised: Any = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": answer.status},
    }
    return ClientError(raised, method)
