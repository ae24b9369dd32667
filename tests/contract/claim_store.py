"""What every store of claims keeps to: `ClaimStore`."""

from __future__ import annotations

from dataclasses import replace

from tests.contract.stores import Stores
from tidings.core import limits
from tidings.core.log.append import Claim

NOW = 4_102_444_700_000  # in 2100: an engine deletes what has expired while a test looks
CLAIM = Claim("key ~!", "f" * 64, "a" * 32, 7, NOW + limits.CLAIM_MS)


class TestClaims:
    def test_a_claim_is_found(self, stores: Stores, feed: str) -> None:
        """Under its feed and key, as it was written."""
        assert stores.claims.find(feed, CLAIM.key, now_ms=NOW) is None
        assert stores.claims.claim(feed, CLAIM, now_ms=NOW) == CLAIM
        assert stores.claims.find(feed, CLAIM.key, now_ms=NOW) == CLAIM
        assert stores.claims.find(f"{feed}-other", CLAIM.key, now_ms=NOW) is None

    def test_the_first_claim_stands(self, stores: Stores, feed: str) -> None:
        """A second one learns the first one."""
        stores.claims.claim(feed, CLAIM, now_ms=NOW)
        second = replace(CLAIM, append_id="b" * 32, page=8)
        assert stores.claims.claim(feed, second, now_ms=NOW) == CLAIM

    def test_an_expired_claim_does_not_count(self, stores: Stores, feed: str) -> None:
        """It is not found, and the key can be claimed again."""
        stores.claims.claim(feed, CLAIM, now_ms=NOW)
        late = CLAIM.expires_ms
        assert stores.claims.find(feed, CLAIM.key, now_ms=late - 1) == CLAIM
        assert stores.claims.find(feed, CLAIM.key, now_ms=late) is None
        new = replace(CLAIM, page=9, expires_ms=late + limits.CLAIM_MS)
        assert stores.claims.claim(feed, new, now_ms=late - 1) == CLAIM
        assert stores.claims.claim(feed, new, now_ms=late) == new

    def test_a_claim_moves_once(self, stores: Stores, feed: str) -> None:
        """If two move it from the same page, the second gets the new page."""
        stores.claims.claim(feed, CLAIM, now_ms=NOW)
        moved = stores.claims.move(feed, CLAIM, 8)
        assert moved == replace(CLAIM, page=8)
        assert stores.claims.move(feed, CLAIM, 9) == moved
        assert stores.claims.move(feed, moved, 10) == replace(CLAIM, page=10)
        assert stores.claims.find(feed, CLAIM.key, now_ms=NOW) == replace(CLAIM, page=10)
