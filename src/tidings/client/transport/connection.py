"""A connection for requests to a feed, whom it trusts, and the client's errors for httpx's."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import httpx
from tidings.client import auth
from tidings.client.errors import Lost, WrongUrl

CONNECT_S = 10.0
ANSWER_S = 40.0  # API Gateway answers within 30 s, whatever happens behind it


@cache
def trusted() -> ssl.SSLContext:
    """httpx's own choice, made once: it reads every root certificate, which takes 30 ms."""
    return httpx.create_ssl_context()


def opened(password: str) -> httpx.Client:
    """Kept open between requests; close it."""
    return httpx.Client(
        headers=auth.basic(password),
        timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
        verify=trusted(),
    )


@contextmanager
def translated(url: str, *, silence: str = "") -> Iterator[None]:
    """
    Around one request to *url*; *silence* is the reason to give for an answer that stops coming.

    Raises:
        WrongUrl: it cannot be used.
        Lost: no answer; nobody knows whether the request came through.
    """
    try:
        yield
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise WrongUrl(f"{url!r} cannot be used: {error}") from None
    except httpx.HTTPError as error:
        reason = silence if isinstance(error, httpx.ReadTimeout) else ""
        raise Lost(reason or str(error) or type(error).__name__) from None
