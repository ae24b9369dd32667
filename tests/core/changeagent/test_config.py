"""The configuration: what is replaced, what stays, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from tidings.core.changeagent.config import Configuration, Purges, encoded, replaced, stored
from tidings.core.changeagent.documents import CONFIGURATION, OperatorDocument
from tidings.core.changeagent.webhooks import Hook
from tidings.core.errors import InvalidSetting
from tidings.core.model.feeds import Retention

from tests.fakes import MemoryOperatorDocuments

S = 1_000_000_000
FULL = Configuration(5, 60 * S, 20 * S, 3 * S, (Hook("http://a", (("b", "c"),)),))


def test_A38_what_is_stored_comes_back() -> None:
    """And without a sheet the defaults."""
    assert stored(encoded(FULL)) == FULL
    assert stored("") == Configuration()
    assert list(Configuration().document()) == [
        "minPurgeRecords",
        "minPurgeDuration",
        "electionTimeout",
        "heartbeatTimeout",
        "webHooks",
    ]


@pytest.mark.parametrize("document", [None, {}])
def test_A38_durations_that_are_left_out_stay(document: Any) -> None:
    """Records and webhooks go, as in changeagent."""
    assert replaced(FULL, document) == Configuration(0, 60 * S, 20 * S, 3 * S)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "the configuration must be a mapping"),
        ({"heartbeatTimeout": "99ms"}, "Heartbeat timeout must be at least 100ms"),
        ({"electionTimeout": "3.9s"}, "Election timeout 3.9s must be at least 4s"),
        ({"heartbeatTimeout": "6s"}, "Election timeout 10s must be at least 12s"),
        ({"minPurgeDuration": 5}, 'Error parsing minPurgeDuration: time: invalid duration "5"'),
        ({"minPurgeDuration": "-1s"}, "minPurgeDuration must not be negative"),
        ({"minPurgeRecords": True}, "minPurgeRecords must be a whole number"),
        ({"minPurgeRecords": "5"}, "minPurgeRecords must be a whole number"),
        ({"minpurgerecords": 5, 7: 1}, "Unknown key: 7, minpurgerecords"),
    ],
)
def test_A39_what_breaks_a_rule_is_refused(document: Any, message: str) -> None:
    """In changeagent's words where it had any; a key that means nothing is never passed over."""
    with pytest.raises(InvalidSetting, match=message):
        replaced(Configuration(), document)


@pytest.mark.parametrize(
    ("records", "seconds", "purge"),
    [(0, 0, None), (5, 0, None), (0, 5, None), (5, 5, Retention(5_000, 5))],
)
def test_A24_a_purge_needs_both(records: int, seconds: int, purge: Retention | None) -> None:
    """As the trimmer is told for each feed."""
    operator_documents = MemoryOperatorDocuments()
    operator_documents.write(
        "main", CONFIGURATION, OperatorDocument(encoded(Configuration(records, seconds * S)))
    )

    assert Purges(operator_documents)("main") == purge
    assert Purges(operator_documents)("other") is None


@pytest.mark.parametrize("name", ["Authorization", "cookie", "X-Api-Key", "x-hub-signature"])
def test_credentials_in_headers_are_stored_and_not_shown(name: str) -> None:
    """What is shown can be written again, and keeps them; no other address can ask for them."""
    given = {"webHooks": [{"uri": "http://a", "headers": {name: "abracadabra", "foo": "bar"}}]}
    configuration = replaced(Configuration(), given)
    shown = configuration.shown()

    assert shown["webHooks"] == [{"uri": "http://a", "headers": {name: "redacted", "foo": "bar"}}]
    assert replaced(configuration, shown) == configuration
    assert stored(encoded(configuration)) == configuration
    elsewhere = {"webHooks": [{"uri": "http://b", "headers": {name: "redacted"}}]}
    with pytest.raises(InvalidSetting, match="has no stored value"):
        replaced(configuration, elsewhere)
