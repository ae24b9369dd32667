"""The sending thread. It posts the batches in order, each until the feed accepts or refuses it."""

from __future__ import annotations

import os
import random
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidings.agent import queue
from tidings.agent.intake import Notices
from tidings.agent.queue import Batch, Store
from tidings.client.address import operations_url
from tidings.client.errors import AccessDenied, Lost, Refused, WrongAnswer
from tidings.client.feed_api import NDJSON, FeedApi
from tidings.client.files import private_opener
from tidings.core.errors import InvalidOperation, KeyReused, TooLarge

LINGER_S = 0.005  # a wait under light load, so that operations that arrive together share a request
LOOK_EVERY_S = 1.0  # the interval at which the queue is polled if `more` is not called
ENDING_DELAY_S_MAX = 1.0  # the longest delay between attempts while the agent is ending
DISK_DELAY_S = 1.0  # the delay before the next attempt after a disk error
DELAY_S_MIN = 0.5  # as in oplog; a throttled feed is available again after this delay
DELAY_S_MAX = 60.0  # as in oplog; with the random part, a delay is at most 90 s
_GROWTH = 1.5
REFUSED = "refused.ndjson"
# The size of a full file, more than a person reads. Later operations are only counted.
REFUSED_BYTES_MAX = 64 * 1024 * 1024
_CONTENT = {InvalidOperation.code, TooLarge.code}


class Unfit(Exception):
    """The feed refuses the content of the batch for good; nothing was appended."""


class KeyInUse(Exception):
    """Another request has used the key of the batch."""


class Target:
    """A connection to the feed that is kept open between batches."""

    def __init__(self, url: str, feed: str, password: str) -> None:
        self.url = operations_url(url, feed)
        self._api = FeedApi(url, feed, password=password)

    def post(self, batch: Batch) -> None:
        """Append *batch* to the feed, only once even if it is posted repeatedly.

        Raises:
            Unfit: the content of the batch is refused.
            KeyInUse: the batch needs another key.
            Refused: the password, the address or the feed is wrong.
            Lost: no answer arrived, or the answer allows another attempt.
        """
        headers = {"Content-Type": NDJSON, "Idempotency-Key": batch.key}
        try:
            answer = self._api.request("POST", "ops", content=batch.body, headers=headers)
        except Refused as error:
            # A proxy can also answer 400, but only a feed answers with one of these codes.
            if error.code in _CONTENT:
                raise Unfit(error.message) from None
            if error.code == KeyReused.code:
                raise KeyInUse(error.message) from None
            raise
        if answer.status_code != 204:
            raise WrongAnswer


def new_key() -> str:
    """Return a unique Idempotency-Key."""
    return secrets.token_hex(16)


class Retrying:
    """Growing delays before the next attempt, as in oplog.

    Each delay is changed at random by up to half of it, so that agents do not retry together.
    """

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        self._chance = chance
        self._delay_s = DELAY_S_MIN

    def next_s(self) -> float:
        """Return the seconds until the next attempt; they grow with each call until `reset`."""
        delay_s = self._delay_s
        self._delay_s = min(delay_s * _GROWTH, DELAY_S_MAX)
        return delay_s * (0.5 + self._chance())

    def reset(self) -> None:
        """Make the next delay short again, because the target answered."""
        self._delay_s = DELAY_S_MIN


@dataclass(slots=True)
class SenderStatus:
    """The sender's part of `/status`; *state* is `OK`, `away`, `denied`, `refused` or `disk`."""

    state: str = "OK"
    error: str | None = None
    error_ms: int | None = None
    retries: int = 0

    def fail(self, state: str, error: str) -> None:
        self.state, self.error, self.error_ms = state, error, queue.now_ms()


class Sender:
    """The sender. Run `run` in a thread. Call `more` when the queue has grown.

    Call `end` when the queue will not grow any more.
    """

    def __init__(self, store: Store, folder: Path, target: Target, notices: Notices) -> None:
        self.condition = SenderStatus()
        self._store = store
        self._folder = folder
        self._target = target
        self._notices = notices
        self._retrying = Retrying()
        self._grown = threading.Event()
        self._ending = threading.Event()

    def more(self) -> None:
        self._grown.set()

    def end(self) -> None:
        self._ending.set()
        self._grown.set()

    def run(self) -> None:
        """Send until `end` was called and the queue is empty."""
        while True:
            ending = self._ending.is_set()
            self._grown.clear()
            try:
                sent = self._send_next()
            except sqlite3.Error as error:
                self.condition.fail("disk", str(error))
                self._notices.report("disk", f"the queue cannot be written: {error}")
                self._ending.wait(DISK_DELAY_S)
                sent = True
            if not sent:
                if ending:
                    return
                self._grown.wait(LOOK_EVERY_S)
                self._ending.wait(LINGER_S)

    def _send_next(self) -> bool:
        """Send the next batch. Return False if the queue is empty."""
        batch = queue.first(self._store, new_key)
        if batch is None:
            return False
        try:
            self._target.post(batch)
        except Unfit as unfit:
            self._divide(batch, str(unfit))
        except KeyInUse as error:
            queue.rename(self._store, batch, new_key())
            self._wait("refused", str(error))
        except AccessDenied as error:
            self._wait("denied", str(error))
        except Refused as error:
            self._wait("refused", str(error))
        except Lost as error:
            self._wait("away", error.reason, error.after_s)
        else:
            queue.settle(self._store, batch)
            self._on_answer()
        return True

    def _on_answer(self) -> None:
        self.condition.state = "OK"
        self._retrying.reset()

    def _divide(self, batch: Batch, why: str) -> None:
        """Split a refused batch; if it has only one operation, move that operation to a file."""
        self._on_answer()
        if len(batch.lines) > 1:
            queue.divide(self._store, batch, new_key)
            return
        self.condition.error, self.condition.error_ms = why, queue.now_ms()
        kept = keep(self._folder, batch.lines)
        where = f"kept in {REFUSED}" if kept else f"dropped: {REFUSED} is full"
        self._notices.report("unfit", f"the feed refuses an operation ({why}); {where}")
        queue.drop(self._store, batch)

    def _wait(self, state: str, error: str, after_s: float = 0) -> None:
        delay_s = max(self._retrying.next_s(), after_s)
        self.condition.fail(state, error)
        self.condition.retries += 1
        queued = self._store.totals().events
        self._notices.report(state, f"{self._target.url}: {error}; {queued:,} queued, trying again")
        if self._ending.wait(delay_s):
            time.sleep(min(delay_s, ENDING_DELAY_S_MAX))


def keep(folder: Path, lines: Sequence[bytes]) -> bool:
    """Append *lines*, which the feed refuses for good, to a file for a person to read.

    The lines are then safe from power loss. Return False if the file is full.
    """
    with open(folder / REFUSED, "ab", opener=private_opener) as file:
        if file.tell() >= REFUSED_BYTES_MAX:
            return False
        file.write(b"".join(line + b"\n" for line in lines))
        file.flush()
        os.fsync(file.fileno())
    return True
