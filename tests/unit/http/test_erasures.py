"""The endpoint of erasures: the caller in a report, and the state in each phase."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidings.core.auth.guard import ALL, Allowed, Credential
from tidings.core.erasure.records import Erasure, Phase
from tidings.core.model.cursors import Place
from tidings.core.model.feeds import FixedFeeds
from tidings.http.endpoints.erasures import ErasureSummary
from tidings.http.request import Request
from tidings.http.wire import Call

KEY = "tdk_3k2m9c0q8xw1_" + "s" * 32
RECORD = Erasure(Place(4, 0, 9).encode(), "user", "ann", "key 3k2m9c0q8xw1", "request 7", 9000)


@pytest.mark.parametrize(
    ("allowed", "given", "expected"),
    [
        (ALL, None, "anonymous"),
        (ALL, Credential("an ingest password", "ann"), "password"),
        (Allowed(principal="3k2m9c0q8xw1"), Credential(KEY, "ann"), "key 3k2m9c0q8xw1"),
        (Allowed(principal="0af7"), Credential("eyJ", bearer=True), "token 0af7"),
    ],
)
def test_22_5_the_caller_is_named_without_a_secret(
    allowed: Allowed, given: Credential | None, expected: str
) -> None:
    """P22.5: nor by the user name, which anyone may choose."""
    call = Call(Request("POST", "/", ""), FixedFeeds(frozenset()), 202)
    call.allowed, call.credential = allowed, given
    assert call.caller == expected


@pytest.mark.parametrize(
    ("phase", "final", "state"),
    [
        *((each, False, "pending") for each in list(Phase)[:6]),
        (Phase.KEPT, False, "erased"),
        (Phase.LOG, True, "erased"),
        (Phase.DONE, True, "done"),
    ],
)
def test_22_5_the_state_follows_from_the_phase(phase: Phase, final: bool, state: str) -> None:
    """P22.5: while the entry itself is erased, the erasure stays `erased`."""
    found = ErasureSummary.of(replace(RECORD, phase=phase, final=final, texts=1))
    assert (found.state, found.found) == (state, None if state == "pending" else True)


def test_22_5_the_id_is_null_once_it_is_erased() -> None:
    """P22.5: the rest of the record stays."""
    done = replace(RECORD, object_id="", phase=Phase.DONE, final=True, done_ms=10_000)
    assert ErasureSummary.of(done).document() == {
        "id": RECORD.id,
        "object": {"type": "user", "id": None},
        "state": "done",
        "found": False,
        "by": "key 3k2m9c0q8xw1",
        "reason": "request 7",
        "parents": False,
        "before": None,
        "requested_at": "1970-01-01T00:00:09Z",
        "erased_at": "1970-01-01T00:00:10Z",
        "until": "1970-01-01T00:00:00Z",
    }
