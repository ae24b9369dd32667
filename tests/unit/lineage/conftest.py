"""A receiver, by the variables with which OpenLineage's client is configured."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from urllib3.util.retry import Retry

from tests.unit.lineage.receiver import Receiver, receiving

KEY = "key-of-the-receiver"
_OF_THE_CLIENT = "OPENLINEAGE__"  # it makes such variables of the simple ones, and leaves them


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "data")
    monkeypatch.setenv("OPENLINEAGE_API_KEY", KEY)
    with receiving() as running:
        monkeypatch.setenv("OPENLINEAGE_URL", running.url)
        yield running


@pytest.fixture(autouse=True)
def _no_trace() -> Iterator[None]:
    yield
    for name in [each for each in os.environ if each.startswith(_OF_THE_CLIENT)]:
        del os.environ[name]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the client pause nowhere between two attempts; it would for 9 s."""
    monkeypatch.setattr(Retry, "sleep", lambda *_: None)
