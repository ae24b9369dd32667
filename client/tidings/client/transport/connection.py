"""A connection for requests to a feed, and the client's errors for those of httpx."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from tidings.client import auth
from tidings.client.errors import Lost, WrongUrl
from tidings.client.tls import trusted

CONNECT_S = 10.0
ANSWER_S = 40.0  # API Gateway answers within 30 s, whatever happens behind it


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
