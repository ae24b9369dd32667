"""
AWS Signature Version 4 of requests that are all alike: POST to / of one host, with one target.

botocore's own takes 110 us a request. Here all that does not depend on the body is made once a
second, and 10 us are left (bench/state_writes.py). A test compares the two.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from botocore.credentials import ReadOnlyCredentials

_CONTENT = "application/x-amz-json-1.0"
_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True)
class _Moment:
    """What all requests of one second share: the head up to the signature, and what it signs."""

    head: str
    canonical: str
    scope: str
    key: bytes


@dataclass(frozen=True, slots=True)
class Signer:
    """Makes the heads of requests to *service* at *host* (with a port, if it is not the usual)."""

    host: str
    region: str
    service: str

    def head(self, credentials: ReadOnlyCredentials, target: str, body: bytes) -> bytes:
        """The HTTP head of the request that asks *target* with *body*, signed for now."""
        moment = _moment(self, credentials, target, int(time.time()))
        canonical = moment.canonical + hashlib.sha256(body).hexdigest()
        signed = moment.scope + hashlib.sha256(canonical.encode()).hexdigest()
        signature = hmac.digest(moment.key, signed.encode(), "sha256").hex()
        return f"{moment.head}{signature}\r\ncontent-length: {len(body)}\r\n\r\n".encode()


@lru_cache(maxsize=8)  # of the targets and credentials that one process has at a time
def _moment(signer: Signer, credentials: ReadOnlyCredentials, target: str, now_s: int) -> _Moment:
    at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_s))
    day = at[:8]
    scope = f"{day}/{signer.region}/{signer.service}/aws4_request"
    headers = {"content-type": _CONTENT, "host": signer.host, "x-amz-date": at}
    if credentials.token:
        headers["x-amz-security-token"] = credentials.token
    headers["x-amz-target"] = target
    names = ";".join(headers)
    listed = "".join(f"{name}:{value}\n" for name, value in headers.items())
    sent = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return _Moment(
        f"POST / HTTP/1.1\r\n{sent}authorization: {_ALGORITHM}"
        f" Credential={credentials.access_key}/{scope}, SignedHeaders={names}, Signature=",
        f"POST\n/\n\n{listed}\n{names}\n",
        f"{_ALGORITHM}\n{at}\n{scope}\n",
        _key(str(credentials.secret_key), day, signer.region, signer.service),
    )


def _key(secret: str, *scope: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (*scope, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key
