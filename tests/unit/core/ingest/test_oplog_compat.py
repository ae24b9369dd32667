"""Manners: whose words a feed refuses in."""

from __future__ import annotations

import pytest

from tests.fakes import MemoryProfiles
from tests.unit.core.scene import FEED, FEEDS, unavailable
from tidings.core.errors import InvalidCursor, InvalidOperation, TidingsError, TooLarge, Unavailable
from tidings.core.settings.profiles import OPLOG, CompatibilityMode, Profile, oplog_status


def test_a_feed_answers_as_its_owner_has_set() -> None:
    """In our way unless it was told otherwise; one we do not have has no owner."""
    profiles = MemoryProfiles()
    compatibility = CompatibilityMode(profiles, FEEDS)
    profiles.save("nowhere", Profile(compat=OPLOG))
    assert not compatibility.are_oplogs(FEED)

    profiles.save(FEED, Profile(compat=OPLOG))
    assert compatibility.are_oplogs(FEED)
    assert not compatibility.are_oplogs("other")
    assert not compatibility.are_oplogs("nowhere")


def test_a_store_that_does_not_answer_is_no_second_error() -> None:
    """The request has failed already; it is answered in our way."""
    away = MemoryProfiles()
    away.profile = unavailable  # type: ignore[method-assign]
    assert not CompatibilityMode(away, FEEDS).are_oplogs(FEED)


@pytest.mark.parametrize(
    ("error", "status", "oplogs"),
    [
        (InvalidOperation("no"), 400, 503),
        (InvalidCursor("no"), 400, 400),
        (TooLarge("no"), 413, 413),
        (Unavailable("no"), 503, 503),
    ],
)
def test_O13_what_oplog_said(error: TidingsError, status: int, oplogs: int) -> None:
    """503 for an operation that is wrong; what it never refused keeps our status."""
    assert oplog_status(error, status) == oplogs
