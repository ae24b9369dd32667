"""`/status` of a twin: on it alone streams have a process, which may be killed by itself."""

from __future__ import annotations

import time

import pytest

from tests.compat.oplog.wire import PATIENCE_S, until
from tests.unit.admin.conftest import LISTENERS, Deserted
from tidings.core import limits

FORGOTTEN_S = limits.PRESENCE_MS / 1000 + 20  # and what a busy machine needs


@pytest.mark.java
def test_O64_clients_of_a_killed_process_are_forgotten(deserted: Deserted) -> None:
    """`kill -9` says goodbye to nobody: the number comes back within a minute all the same."""
    feed, over_s = deserted.feed, time.monotonic() - deserted.killed_s
    with feed.listening():
        until(lambda: feed.status()["connections"] == LISTENERS + 1)
        until(lambda: feed.status()["clients"] == 1, within_s=max(PATIENCE_S, FORGOTTEN_S - over_s))
