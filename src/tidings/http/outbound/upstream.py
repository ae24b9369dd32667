"""Read the pages and rows of another feed over one persistent HTTP connection.

A response is limited in bytes, both compressed and decompressed, and in time. Redirects are not
followed. No error contains a password, or more than one line of the upstream's response.
"""

from __future__ import annotations

import base64
import json
import time
import zlib
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlencode, urlsplit

import urllib3

from tidings.core import limits
from tidings.core.errors import BrokenBatch, LogFellOff, OtherLog, Unavailable, UpstreamRefused
from tidings.core.model import filters
from tidings.core.model.pages import GZIP, inflate
from tidings.core.replication import wire
from tidings.core.state.sums import PageSums
from tidings.core.version import VERSION
from tidings.http.outbound.final_response import await_final

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidings.core.model.cursors import Place
    from tidings.core.replication.source import Selection
    from tidings.core.replication.wire import ReplicationBatch, Rows

CONNECT_S = 5  # timeout of a connect; a TLS connection across an ocean takes half a second
SLACK_S = 10  # time for the transfer, in addition to the wait of the upstream for new pages
BYTES_MAX = 2 * limits.BATCH_BYTES_MAX  # maximum of a response: the pages, and one line per page
PIECE_BYTES = 64 * 1024  # maximum size of a read between two checks of the deadline
REASON_CHARS_MAX = 300  # maximum length of an upstream's reason in an error message
_OK, _REDIRECTS, _FAULT = 200, range(300, 400), 500
_BUSY = frozenset({408, 425, 429})
_UNAUTHORIZED = 401
_LOOPBACK_NAME = "localhost"


class HttpUpstream:
    """Implements `Upstream`. *password* returns the password for the upstream, "" if none is set.

    *password* is called once, and again after a 401. *ca_certs* is a file of CA certificates, or
    None for the certificates of the system.
    """

    def __init__(self, password: Callable[[], str], ca_certs: str | None = None) -> None:
        self._password = password
        self._known: str | None = None
        self._pool = await_final(
            urllib3.PoolManager(
                num_pools=2,  # one for the master, and one for a leader
                maxsize=1,
                retries=False,
                cert_reqs="CERT_REQUIRED",
                ca_certs=ca_certs,
            )
        )

    def pages(
        self, url: str, after: Place, selection: Selection, *, size: int, block_s: int
    ) -> ReplicationBatch:
        parameters = {"size": str(size), "block": str(block_s), **_selection_query(selection)}
        if after.page:
            parameters["after"] = after.encode()
        return wire.decode_batch(self._ask(f"{url}/pages", parameters, block_s, after.page))

    def rows(self, url: str, bucket: int, after: str | None, selection: Selection) -> Rows:
        parameters = {"bucket": str(bucket), **_selection_query(selection)}
        if after is not None:
            parameters["after"] = after
        return wire.decode_rows(self._ask(f"{url}/rows", parameters))

    def sums(self, url: str) -> PageSums:
        try:
            return PageSums.from_json(json.loads(self._ask(f"{url}/sums", {})))
        except (KeyError, TypeError, ValueError) as error:
            raise BrokenBatch(f"the sums cannot be read: {error}") from None

    def _ask(self, url: str, parameters: dict[str, str], block_s: int = 0, after: int = 0) -> str:
        target = f"{url}?{urlencode(parameters)}"
        deadline = time.monotonic() + CONNECT_S + block_s + SLACK_S
        timeout = urllib3.Timeout(connect=CONNECT_S, read=block_s + SLACK_S)
        try:
            answer = self._pool.request(
                "GET",
                target,
                headers=self._headers(url),
                timeout=timeout,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
            text = _text(cast("urllib3.HTTPResponse", answer), deadline)
        except urllib3.exceptions.HTTPError as error:
            raise Unavailable(f"{_host(url)} did not answer: {type(error).__name__}") from None
        if answer.status != _OK:
            self._known = None if answer.status == _UNAUTHORIZED else self._known
            raise _refusal(_host(url), answer.status, text, after)
        return text

    def _headers(self, url: str) -> dict[str, str]:
        if self._known is None:
            self._known = self._password()
        headers = {"accept-encoding": "gzip", "user-agent": f"tidings/{VERSION}"}
        if self._known:
            _check_secret(url)
            user = base64.b64encode(f":{self._known}".encode()).decode()
            headers["authorization"] = f"Basic {user}"
        return headers


def _refusal(host: str, status: int, text: str, after: int) -> Exception:
    """Return the error for a response whose *status* is not 200."""
    error = _error_fields(text)
    code = str(error.get("code", ""))
    if code == LogFellOff.code and type(error.get("floor")) is int:
        return LogFellOff(after, error["floor"])
    if code == OtherLog.code:
        return OtherLog(_line(error.get("rule") or error.get("message")), field="after")
    if status in _REDIRECTS:
        return UpstreamRefused(f"{host} redirects; name the address to which it redirects")
    if status >= _FAULT or status in _BUSY:
        return Unavailable(f"{host} answered with status {status}")
    reason = _line(error.get("message")) if code else "the address is not a feed"
    return UpstreamRefused(f"{host} refused with status {status}: {reason}")


def _selection_query(selection: Selection) -> dict[str, str]:
    chosen, share = selection.filter, selection.share
    parameters = {name: filters.as_text(values) for name, values in chosen.values().items()}
    return parameters | ({"share": share.encode()} if share else {})


def _text(answer: urllib3.HTTPResponse, deadline: float) -> str:
    """Return the body, decompressed."""
    try:
        packed = _body(answer, deadline)
    except BaseException:
        answer.close()  # the rest must not be read as the next response
        raise
    answer.release_conn()
    spelling = "strict" if answer.status == _OK else "replace"
    try:
        is_packed = answer.headers.get("content-encoding") == "gzip"
        body = inflate(packed, BYTES_MAX, GZIP) if is_packed else packed
        return body.decode("utf-8", spelling)
    except (zlib.error, UnicodeDecodeError) as error:
        raise BrokenBatch(f"a response with status {answer.status} is broken: {error}") from None


def _body(answer: urllib3.HTTPResponse, deadline: float) -> bytes:
    """Read the body as it arrives, because a read of a fixed size could block for any time."""
    pieces, size = [], 0
    while piece := answer.read1(PIECE_BYTES, decode_content=False):
        pieces.append(piece)
        size += len(piece)
        if size > BYTES_MAX:
            raise BrokenBatch(f"a response has more than {BYTES_MAX} bytes")
        if time.monotonic() > deadline:
            raise Unavailable("a response takes too long")
    return b"".join(pieces)


def _check_secret(url: str) -> None:
    """Check that a password may be sent to *url*."""
    parts = urlsplit(url)
    if parts.scheme == "https" or _is_loopback(parts.hostname or ""):
        return
    raise UpstreamRefused(f"{_host(url)}: a password may be sent only over https")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == _LOOPBACK_NAME


def _error_fields(text: str) -> dict[str, Any]:
    try:
        error = json.loads(text)["error"]
    except (ValueError, KeyError, TypeError):
        error = None
    return error if isinstance(error, dict) else {}


def _line(value: object) -> str:
    text = " ".join(str(value).split())[:REASON_CHARS_MAX]
    return "".join(each for each in text if each.isprintable())


def _host(url: str) -> str:
    return urlsplit(url).netloc
