"""The HTTP connection to a feed: its certificates, its timeouts, and the errors of httpx."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import httpx

from tidings.client import auth
from tidings.client.errors import Lost, WrongUrl

CONNECT_S = 10.0
ANSWER_S = 40.0  # API Gateway answers within 30 s in any case


@cache
def trusted() -> ssl.SSLContext:
    """Return the default of httpx, created once: reading all root certificates takes 30 ms."""
    return httpx.create_ssl_context()


def opened(password: str) -> httpx.Client:
    """Return a client that keeps its connection open between requests. Close it."""
    return httpx.Client(
        headers=auth.basic(password),
        timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
        verify=trusted(),
    )


@contextmanager
def translated(url: str, *, silence: str = "") -> Iterator[None]:
    """
    Translate errors of one request to *url*. *silence* is the reason to give for a read timeout.

    Raises:
        WrongUrl: *url* cannot be used.
        Lost: the server did not answer; the request may have been handled.
    """
    try:
        yield
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise WrongUrl(f"{url!r} cannot be used: {error}") from None
    except httpx.HTTPError as error:
        reason = silence if isinstance(error, httpx.ReadTimeout) else ""
        raise Lost(reason or str(error) or type(error).__name__) from None
