"""Start and stop the parts of one agent, in order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from io import TextIOWrapper

from tidings.client.address import operations_url
from tidings.server import http_server

from . import clock, ports
from .http import Application, Committing
from .intake import Checker
from .notices import Notices
from .options import Options, Problem
from .receiver import Receiving
from .sender import Sender
from .store import Store, taken
from .target import Target

GRACE_S = 1  # for requests in flight when the agent ends
WATCH_S = 0.2  # how soon the death of a part is noticed
CHECK_S = 5.0  # for datagrams left by the receiver; the next agent checks the others


class Agent:
    """
    The parts of one agent, each with its own connection to the queue.

    Raises:
        Problem: the queue, the port or the address cannot be used.
    """

    def __init__(self, options: Options, notices: Notices, lock: TextIOWrapper) -> None:
        self._options = options
        self._lock = lock  # released when this process and the receiver have ended
        self._started_s = time.monotonic()
        self._store = _prepared(options)
        self.held = self._store.totals().events
        self._listener, self._datagrams = ports.take(options.host, options.port)
        self._receiving = Receiving(self._datagrams, options.folder, options.bound, lock)
        self._inode = os.fstat(self._datagrams.fileno()).st_ino
        target = Target(options.url, options.feed, options.password)
        self._target_url = target.url
        self._sender = Sender(Store(options.folder), options.folder, target, notices)
        self._checker = Checker(
            Store(options.folder), self._receiving.bell, notices, self._sender.more
        )
        committing = Committing(Store(options.folder), options.bound, self._sender.more)
        hosts = frozenset(name.lower() for name in (options.host, *options.allow_hosts))
        self._application = Application(committing, self._status, hosts)
        self._checking = threading.Thread(target=self._checker.run, daemon=True)
        self._sending = threading.Thread(target=self._sender.run, daemon=True)

    @property
    def address(self) -> str:
        """Return the address in the form that producers use."""
        host, port = self._listener.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def run(self, ready: Callable[[], None], stopped: asyncio.Event) -> int:
        """
        Serve until *stopped*, then drain. Return how many operations are left on disk.

        Raises:
            Problem: a part of it died.
        """
        self._checking.start()
        self._sending.start()
        async with http_server.serving(self._application, self._listener, grace_s=GRACE_S):
            ready()
            await self._watch(stopped)
        await asyncio.to_thread(self._drain)
        return self._store.totals().events

    async def _watch(self, stopped: asyncio.Event) -> None:
        while not stopped.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), WATCH_S)
            if self._receiving.has_ended:
                raise Problem("the receiving process has died; start the agent again")
            if not (self._checking.is_alive() and self._sending.is_alive()):
                raise Problem("the queue cannot be read; its folder needs a look")

    def _drain(self) -> None:
        """Write received datagrams to disk, then post as much as time allows."""
        deadline_s = time.monotonic() + self._options.drain_s
        self._datagrams.close()
        self._receiving.end()
        self._checking.join(max(CHECK_S, deadline_s - time.monotonic()))
        self._sender.end()
        self._sending.join(max(0.0, deadline_s - time.monotonic()))

    def _status(self) -> dict[str, object]:
        """
        Return `/status`: the ten fields of oplog with their meanings, and more for operators.

        It contains only these fields: no environment, no command line, no password.
        """
        totals, oldest_ms = self._store.totals(), self._store.oldest_ms()
        bound, condition = self._options.bound, self._sender.condition
        return {
            "status": condition.state,
            # An agent serves no consumers; the fields of oplog for them are kept.
            "clients": 0,
            "connections": 0,
            "events_discarded": totals.discarded,
            "events_error": totals.errors + self._application.errors,
            "events_ingested": totals.ingested,
            "events_received": totals.received,
            "events_sent": 0,
            "queue_max_size": bound.events,
            "queue_size": totals.events,
            "events_refused": totals.refused,
            "kernel_drops": ports.drops(self._inode),
            "last_error": condition.error,
            "last_error_ms": condition.error_ms,
            "oldest_queued_ms": None if oldest_ms is None else clock.now_ms() - oldest_ms,
            "queue_bytes": totals.bytes,
            "queue_max_bytes": bound.bytes,
            "retries": condition.retries,
            "target": self._target_url,
            "uptime_s": int(time.monotonic() - self._started_s),
        }


def start(options: Options, notices: Notices) -> Agent:
    """
    Lock the folder, bind the port, and create the parts.

    Raises:
        Problem: the folder or the port cannot be used.
        WrongUrl: the address of the target is invalid.
    """
    operations_url(options.url, options.feed)
    return Agent(options, notices, taken(options.folder))


def _prepared(options: Options) -> Store:
    try:
        store = Store(options.folder)
        store.prepare(options.feed)
    except sqlite3.Error as error:
        raise Problem(f"cannot use the queue in {options.folder}: {error}") from None
    return store
