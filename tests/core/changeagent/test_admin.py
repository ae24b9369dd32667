"""Administering: marks and configurations, also when two write at once."""

from __future__ import annotations

import pytest
from tidings.core.changeagent.admin import Administrator
from tidings.core.changeagent.config import Configuration
from tidings.core.changeagent.documents import CONFIGURATION, OperatorDocument
from tidings.core.errors import InvalidSetting, Unavailable

from tests.core.changeagent.gates import gate
from tests.core.scene import FEED, FEEDS, Scene
from tests.fakes import MemoryOperatorDocuments


class Contended(MemoryOperatorDocuments):
    """Before each of the first *times* writes, somebody else writes."""

    def __init__(self, times: int = 0) -> None:
        super().__init__()
        self.times = times

    def write(self, feed: str, name: str, operator_document: OperatorDocument) -> bool:
        if self.times:
            self.times -= 1
            standing = super().operator_document(feed, name)
            text = '{"electionTimeout":"1m"}'
            super().write(feed, name, OperatorDocument(text, standing.version))
        return super().write(feed, name, operator_document)


def administrator(documents: MemoryOperatorDocuments) -> Administrator:
    return Administrator(documents, gate(Scene(), documents), FEEDS)


def test_a_configuration_is_made_on_top_of_what_others_set() -> None:
    """What is left out is theirs; who never gets through is told to try again."""
    admin = administrator(Contended(1))
    assert admin.configure(FEED, {"heartbeatTimeout": "3s"}).election_ns == 60_000_000_000
    assert admin.configuration(FEED).heartbeat_ns == 3_000_000_000
    with pytest.raises(Unavailable):
        administrator(Contended(9)).configure(FEED, {})


def test_a_wrong_configuration_changes_nothing() -> None:
    """Nor does it take a version."""
    documents = MemoryOperatorDocuments()
    with pytest.raises(InvalidSetting):
        administrator(documents).configure(FEED, {"webHooks": 1})
    assert documents.operator_document(FEED, CONFIGURATION) == OperatorDocument()
    assert administrator(documents).configuration(FEED) == Configuration()
