"""Decode the body of a request by its `Content-Encoding`: plain or gzip."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.errors import Rejected, TooLarge

if TYPE_CHECKING:
    from collections.abc import Mapping

ACCEPTED = "gzip"
_GZIP = frozenset(("gzip", "x-gzip"))  # RFC 9110, 8.4.1.3: both names mean the same
_IDENTITY = "identity"
_WINDOW = 31  # for zlib: requires the header and trailer of gzip


class UnsupportedEncoding(Rejected, code="unsupported_encoding", status=415):
    """The encoding of the body is not supported; the response names the supported one."""


class InvalidEncoding(Rejected, code="invalid_encoding", status=400):
    """The body does not match its encoding, or is truncated."""


def is_compressed(headers: Mapping[str, str]) -> bool:
    """
    Return True if the body of a request with *headers* is compressed.

    Raises:
        UnsupportedEncoding: it is encoded more than once, or not with gzip.
    """
    given = headers.get("content-encoding")
    if given is None:
        return False
    names = [name for each in given.split(",") if (name := each.strip().lower()) != _IDENTITY]
    names = [name for name in names if name]
    if len(names) > 1 or not _GZIP.issuperset(names):
        raise UnsupportedEncoding("must be gzip or identity", field="Content-Encoding", value=given)
    return bool(names)


def decompress(body: bytes, most: int = limits.REQUEST_BYTES_MAX) -> bytes:
    """
    Return *body*, one or more gzip members, decompressed.

    Raises:
        TooLarge: it has more than *most* bytes; no more are decompressed.
        InvalidEncoding: it is not gzip, or is truncated.
    """
    parts: list[bytes] = []
    left = most
    while body or not parts:
        member = zlib.decompressobj(_WINDOW)
        try:
            part = member.decompress(body, left + 1)
        except zlib.error as error:
            raise InvalidEncoding(f"is not gzip: {error}", field="body") from None
        if len(part) > left:
            raise TooLarge(f"a request holds at most {most} bytes, decompressed", field="body")
        if not member.eof:
            raise InvalidEncoding("ends before its gzip does", field="body")
        parts.append(part)
        left -= len(part)
        body = member.unused_data
    return b"".join(parts)
