"""The checking thread: rings from the receiver's process, lines out of its datagrams."""

from __future__ import annotations

import os
import select
import sqlite3
from collections.abc import Callable

from . import intake
from .notices import Notices
from .store import Store

WAKE_WAIT_S = 1.0  # a ring that was not heard, because the pipe was full, is made up for


class Checker:
    """
    Run `run` in a thread. *bell* is where the receiver rings; it has ended when that is closed.

    *grown* is called when there are more lines to send.
    """

    def __init__(
        self, store: Store, bell: int, notices: Notices, grown: Callable[[], None]
    ) -> None:
        self._store = store
        self._bell = bell
        self._notices = notices
        self._grown = grown

    def run(self) -> None:
        """Check until the receiver has ended and everything it left is checked."""
        rung = True
        while rung:
            rung = self._heard()
            try:
                self._check_all()
            except sqlite3.OperationalError as error:
                self._notices.tell("disk", f"the queue cannot be written: {error}")

    def _heard(self) -> bool:
        """Wait for a ring; False when there will be none any more."""
        ready, _, _ = select.select([self._bell], [], [], WAKE_WAIT_S)
        return not ready or bool(os.read(self._bell, 65_536))

    def _check_all(self) -> None:
        while intake.check(self._store, self._tell):
            self._grown()
            self._store.cut()

    def _tell(self, why: str) -> None:
        self._notices.tell("error", f"a datagram is no operation: {why}")
