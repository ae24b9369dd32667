"""`/status` of a twin: on it alone streams have a process, which may be killed by itself."""

from __future__ import annotations

import time

import pytest

from tests.compat.oplog.wire import PATIENCE_S, until
from tests.unit.admin.conftest import LISTENERS, Deserted
from tidings.core import limits

FORGOTTEN_S = limits.PRESENCE_MS / 1000 + 20  # with a margin for a busy machine


@pytest.mark.java
def test_O64_clients_of_a_killed_process_are_forgotten(deserted: Deserted) -> None:
    """`kill -9` closes no connection properly: the number is still right within a minute."""
    feed, over_s = deserted.feed, time.monotonic() - deserted.killed_s
    with feed.listening():
        until(lambda: feed.status()["connections"] == LISTENERS + 1)
        until(lambda: feed.status()["clients"] == 1, within_s=max(PATIENCE_S, FORGOTTEN_S - over_s))
