"""What is remembered of a request that carried an Idempotency-Key."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """
    *key* belongs to the request with *fingerprint*, appended under *append_id* at *page*.

    The page is named before it is written, so that the request and its retry, even at the
    same time, aim at one page and only one of them can win it.
    """

    key: str
    fingerprint: str
    append_id: str
    page: int
    expires_ms: int
