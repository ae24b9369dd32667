"""Proposing: the order of the checks on a change; a refused change is not stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.fakes import MemoryOperatorDocuments
from tests.unit.core.changeagent.gates import gate
from tests.unit.core.scene import FEED, Scene
from tidings.core.changeagent import config
from tidings.core.changeagent.config import Configuration
from tidings.core.changeagent.documents import CONFIGURATION, OperatorDocument
from tidings.core.changeagent.submit import Proposer
from tidings.core.changeagent.webhooks import Hook, Verdict
from tidings.core.errors import (
    InvalidChange,
    InvalidKey,
    KeyReused,
    RefusedByHook,
    Rejected,
    TooLarge,
    UnknownFeed,
    WrongContentType,
)
from tidings.core.ingest.ingest import PostRequest
from tidings.core.model.operations import is_change

GOOD = PostRequest(FEED, b'{"data":{"a":1},"tags":["t"]}', "application/json")


class Proposing:
    def __init__(self, *verdicts: Verdict) -> None:
        self.scene = scene = Scene()
        self.verdicts, self.requests = verdicts, list[tuple[int, str]]()
        documents = MemoryOperatorDocuments()
        if verdicts:
            hooks = Configuration(hooks=(Hook("http://a"),) * len(verdicts))
            documents.write(
                FEED, CONFIGURATION, OperatorDocument(config.encode_configuration(hooks))
            )
        self.proposer = Proposer(
            appender=scene.appender,
            gate=gate(scene, documents),
            operator_documents=documents,
            ask=self._ask,
            counters=scene.counters,
            tracer=scene.host.tracer,
        )

    def _ask(self, hooks: Sequence[Hook], data: str) -> Sequence[Verdict]:
        self.requests.append((len(hooks), data))
        return self.verdicts

    def lines(self) -> list[str]:
        return [line for page in self.scene.log.read(FEED, 0) for line in page.lines]


def test_a_change_is_appended_when_all_accept() -> None:
    """Webhooks get only the data; without webhooks no request is sent."""
    proposing = Proposing(Verdict(200), Verdict(204))
    assert proposing.proposer.accept(GOOD) == 1 << 10
    assert proposing.requests == [(2, '{"a":1}')]
    assert [is_change(line) for line in proposing.lines()] == [True]
    assert proposing.scene.counted["OperationsIngested"] == 1

    alone = Proposing()
    assert alone.proposer.accept(GOOD) == 1 << 10 and alone.requests == []


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"feed": "nope"}, UnknownFeed),
        ({"content_type": "application/jsonp"}, WrongContentType),
        ({"body": b"{"}, InvalidChange),
        ({"body": b'"' + b"x" * 70_000 + b'"'}, TooLarge),
        ({"key": ""}, InvalidKey),
    ],
)
def test_what_is_wrong_is_refused_before_any_hook_is_asked(
    changes: dict[str, Any], error: type[Rejected]
) -> None:
    """No number is taken; invalid operations are counted for the status."""
    proposing = Proposing(Verdict(200))
    with pytest.raises(error):
        proposing.proposer.accept(GOOD._replace(**changes))

    assert proposing.requests == [] and proposing.scene.log.head(FEED) == 0
    counted = error in (InvalidChange, TooLarge)
    assert proposing.scene.counters.totals(FEED, now_ms=0).refused == counted
    assert proposing.scene.counted["RequestsRejected"] == 1


def test_A30_what_a_hook_refuses_is_not_stored() -> None:
    """No page, and no number that readers would wait for."""
    proposing = Proposing(Verdict(200), Verdict(failure="gone"))
    with pytest.raises(RefusedByHook, match="Error 1: gone"):
        proposing.proposer.accept(GOOD)

    assert proposing.scene.log.head(FEED) == 0


def test_a_key_is_one_change() -> None:
    """A repeat appends nothing; with another body it is refused."""
    proposing = Proposing()
    keyed = GOOD._replace(key="k")

    assert proposing.proposer.accept(keyed) == proposing.proposer.accept(keyed)
    assert len(proposing.lines()) == 1
    with pytest.raises(KeyReused):
        proposing.proposer.accept(keyed._replace(body=b"2"))
