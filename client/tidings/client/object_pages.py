"""Reading a feed's own bootstrap route, page by page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx

from . import passwords
from .address import base_url
from .errors import Lost
from .listener_signals import Bootstrap
from .refusals import error_of, retry_after_s

ANSWER_S = 40.0  # API Gateway answers within 30 s, whatever happens behind it


class ObjectPages:
    """Implements `Fetch` for the routes of a feed at *url*; of another service it reads nothing."""

    def __init__(self, url: str, password: str = "") -> None:
        self._url = base_url(url)
        self._headers = passwords.basic(password)

    def __call__(self, bootstrap: Bootstrap) -> Iterator[Mapping[str, Any]]:
        """
        Raises:
            Lost: a page did not come; register and begin again.
            AccessDenied, Refused: it never will.
        """
        parts = urlsplit(bootstrap.route)
        if not (parts.path.startswith("/feeds/") and parts.path.endswith("/objects")):
            return
        query = dict(httpx.QueryParams(parts.query))
        with httpx.Client(timeout=ANSWER_S, headers=self._headers) as client:
            while True:
                page = _page(client, f"{self._url}{parts.path}", query)
                yield from page["objects"]
                if page["next"] is None:
                    return
                query["after"] = page["next"]


def _page(client: httpx.Client, url: str, query: Mapping[str, str]) -> dict[str, Any]:
    try:
        answer = client.get(url, params=query)
    except httpx.HTTPError as error:
        raise Lost(str(error) or type(error).__name__) from None
    if answer.status_code != 200:
        raise error_of(answer.status_code, answer.content, after_s=retry_after_s(answer))
    try:
        found: dict[str, Any] = answer.json()
        return {"objects": found["objects"], "next": found["next"]}
    except (ValueError, KeyError, TypeError):
        raise Lost("the answer is not one of a feed; is the address right?") from None
