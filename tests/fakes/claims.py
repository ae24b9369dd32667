"""What became of requests with an Idempotency-Key."""

from __future__ import annotations

from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidings.core.log.idempotency import Claim


class MemoryClaims:
    """Implements `ClaimStore`."""

    def __init__(self) -> None:
        self._claims: dict[tuple[str, str], Claim] = {}
        self._lock = Lock()

    def find(self, feed: str, key: str, *, now_ms: int) -> Claim | None:
        with self._lock:
            return self._live(feed, key, now_ms)

    def claim(self, feed: str, claim: Claim, *, now_ms: int) -> Claim:
        with self._lock:
            standing = self._live(feed, claim.key, now_ms)
            if standing is not None:
                return standing
            self._claims[feed, claim.key] = claim
            return claim

    def move(self, feed: str, claim: Claim, page: int) -> Claim:
        with self._lock:
            standing = self._claims.get((feed, claim.key), claim)
            if (standing.append_id, standing.page) != (claim.append_id, claim.page):
                return standing
            moved = replace(claim, page=page)
            self._claims[feed, claim.key] = moved
            return moved

    def _live(self, feed: str, key: str, now_ms: int) -> Claim | None:
        claim = self._claims.get((feed, key))
        return claim if claim is not None and claim.expires_ms > now_ms else None
