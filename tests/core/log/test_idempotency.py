"""A claim is a value: the request it belongs to and the page it names."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest
from tidings.core.log.idempotency import Claim

CLAIM = Claim("key", "fingerprint", "append id", page=7, expires_ms=9)


def test_a_claim_cannot_be_changed() -> None:
    """Only its store moves it, and says what stands afterwards."""
    with pytest.raises(FrozenInstanceError):
        CLAIM.page = 8  # type: ignore[misc]


def test_a_moved_claim_is_the_same_request() -> None:
    """Another page under the same append id, so that the page can tell whose it is."""
    moved = replace(CLAIM, page=8)

    assert moved != CLAIM
    assert moved.append_id == CLAIM.append_id
