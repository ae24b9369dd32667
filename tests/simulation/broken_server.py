"""Servers with one rule taken out; K1 to K6 are errors that an earlier release had."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from tests.simulation.parts import Around, instead
from tidings.core.consumers import consumer
from tidings.core.erasure.entries import Scrubbed, Scrubber
from tidings.core.erasure.eraser import ErasureProgress
from tidings.core.erasure.records import Erasure, Phase
from tidings.core.feeds import records, service
from tidings.core.feeds.service import Feeds
from tidings.core.followers.follower import Follower
from tidings.core.hooks.webhook import WebhookDelivery
from tidings.core.limits import WEBHOOK_AT_ONCE
from tidings.core.model.operations import is_erased
from tidings.core.model.pages import Page, encode
from tidings.core.replication.admin import RelayControl
from tidings.core.replication.copies import CopiedLosses
from tidings.core.state.rows import Overwritten
from tidings.core.sync.corrections import Conflicts, Verdict
from tidings.http.outbound.credentials import Tokens
from tidings.http.request import Answer
from tidings.http.streams.tail_poller import HEARTBEAT_MS, LiveStream
from tidings.server import app, host, metrics, wakeups, writer
from tidings.server.issuer_keys import IssuerKeys
from tidings.server.memory import MemoryFollowers
from tidings.server.recovery import Generations, Recovery, Start
from tidings.server.sqlite import database
from tidings.server.sqlite.database import Database
from tidings.server.sqlite.log import SqliteClaims, SqliteFollowers, SqliteLog
from tidings.server.sqlite.removal import SqliteFeedData
from tidings.server.sqlite.state import _Overwriting


def all_of(*arounds: Around) -> Around:
    """Return the replacements of all *arounds*."""

    @contextmanager
    def around() -> Iterator[None]:
        if not arounds:
            yield
            return
        with arounds[0](), all_of(*arounds[1:])():
            yield

    return around


def _nothing(*_: Any) -> Any:
    """Replace a method that returns nothing."""


async def _at_once(*_: Any) -> None:
    """Replace a method that returns nothing, and waits for nothing."""


# K1: a number and its page are two transactions, and a start does not fill holes.
in_two_transactions = all_of(
    instead(SqliteLog, "together", lambda log, run: run()),
    instead(Recovery, "fill", lambda recovery, feed: ()),
    instead(Recovery, "end", lambda recovery, feed: recovery.log.head(feed)),
)


async def _metrics_in_loop(served: Any, _: str) -> Answer:
    return Answer(200, {}, metrics.render_metrics(served._host))


def _read_locked(database: Any) -> Any:
    return database._inner if database.is_writing else database._outer()


# K2: the event loop renders the metrics, and every read takes the lock of the database.
waits_in_loop = all_of(
    instead(app.ServerApp, "_metrics", _metrics_in_loop),
    instead(Database, "reading", _read_locked),
    instead(Database, "acquire", lambda database, *, wait=True: database._turn.acquire()),
    instead(database, "check_may_block", _nothing),
)


def _rollback_first(database: Any) -> None:
    database._undo_after()
    if database._connection.in_transaction:
        database._connection.execute("ROLLBACK")
    database._release()


keeps_lock = instead(Database, "rollback", _rollback_first)  # K2, if SQLite cannot undo
# K6: a lease that a fast clock has set
any_deadline = instead(consumer, "is_ahead", lambda until_ms, now_ms, longest_ms: until_ms > now_ms)


def _always_fetches(tokens: Any, name: str, value: Any) -> None:
    object.__setattr__(tokens, name, True if name == "fetches" else value)


_sent_ms: WeakKeyDictionary[LiveStream, int] = WeakKeyDictionary()


def _mark_by_wall(live: LiveStream, progress: Any) -> None:
    _sent_ms[live] = host.now_ms()
    _MARK(live, progress)


def _silent_by_wall(live: LiveStream) -> float:
    return HEARTBEAT_MS - (host.now_ms() - _sent_ms.setdefault(live, host.now_ms()))


_MARK = LiveStream.mark_sent
silent_by_wall = all_of(  # K6
    instead(LiveStream, "mark_sent", _mark_by_wall),
    instead(LiveStream, "silent_ms", property(_silent_by_wall)),
)
# K5: the call that needs a key of the issuer fetches it, in the loop.
fetches_in_loop = all_of(
    instead(IssuerKeys, "_prepare", _at_once),
    instead(Tokens, "may_block", lambda tokens, feed, given: False),
    instead(Tokens, "__setattr__", _always_fetches),
)


# K8: a tombstone counts as an object that lived.
def _lived(state: Any, key: str, page: int, slot: int, *rest: int) -> bool:
    is_older = _IS_OLDER(state, key, page, slot, *rest)
    before = state._before.get(key)
    if before is not None:
        state._before[key] = Overwritten(before.page, before.slot, lives=True)
    return is_older


_IS_OLDER = _Overwriting._is_older
tombstones_lived = instead(_Overwriting, "_is_older", _lived)


def _relaxed(level: str) -> Around:
    def connect(path: Any, *, shared: bool) -> sqlite3.Connection:
        connection = _CONNECTED(path, shared=shared)
        connection.execute(f"PRAGMA synchronous = {level}")
        return connection

    return instead(database, "_connect", connect)


_CONNECTED = database._connect
not_synced = _relaxed("NORMAL")
never_synced = _relaxed("OFF")
keeps_jobs = instead(Database, "begin_again", _nothing)
forgets_keys = instead(SqliteClaims, "_put", lambda claims, feed, claim: claim)


def _commits_later(writer_: Any, jobs: Any) -> Any:
    """Replace `Writer._commit`: the callers are answered before the commit."""

    async def commit() -> None:
        await _COMMIT(writer_, jobs)

    for job in jobs:
        run = job.run

        def early(job: Any = job, run: Callable[[], Any] = run) -> Any:
            job.result = run()
            writer._settle(job)
            return job.result

        job.run = early
    return commit()


_COMMIT = writer.Writer._commit
answers_early = instead(writer.Writer, "_commit", _commits_later)


def _tells_lists_only(served: Any, pages: Any) -> None:
    served.notifications.notify(pages)


wakes_no_push = instead(host.Host, "_on_commit", _tells_lists_only)


# K3: the log of a restored file continues with the numbers that it had before.
numbers_again = instead(Generations, "_begin", _nothing)
# K3: the log continues with new numbers, and the loss of pages is not reported.
losses_forgotten = instead(CopiedLosses, "ranges", lambda losses, feed: ())
# K3: a copy of the data file, or of its folder, counts as the file itself.
copies_unnoticed = all_of(
    instead(Start, "matches", lambda start, found_id, changed_ns: start.id != ""),
    instead(Generations, "_has_all_pages", lambda generations: True),
)
# K3: a promoted copy continues with the numbers after its last page.
promotes_in_place = instead(
    RelayControl,
    "_promote",
    lambda control, before, after: control.reporter.store.write(before, after),
)
# K4: a run that failed keeps its lease.
keeps_leases = instead(Follower, "_abandon", _nothing)
# K4: a run that failed is not repeated.
not_again = instead(wakeups, "AGAIN_S", 1e9)
# K6: a key is forgotten as soon as any clock says so.
keys_by_wall = instead(host, "expiring_ms", host.now_ms)
# K7: a checkpoint counts as written before the commit.
checkpoints_early = instead(SqliteFollowers, "move", MemoryFollowers.move)


def _serve_late(runs: Any) -> None:
    """Replace `Runs._serve`: a wake-up during a run or its pause is lost."""
    module: Any = wakeups
    while (feed := runs._queue.get()) is not None and not runs._stopped:
        with runs._retries.run(feed):
            runs._run(feed)
        module.time.sleep(wakeups.PAUSE_S_MAX)
        runs._due.discard(feed)


wakes_lost = instead(wakeups.Runs, "_serve", _serve_late)
# Events of one object are sent to a webhook side by side.
hooks_in_bulk = instead(
    WebhookDelivery,
    "_batch",
    lambda delivery, held: delivery.consumers.view.due(held, WEBHOOK_AT_ONCE),
)
corrects_all = instead(Conflicts, "verdict", lambda conflicts, correction: Verdict.UNCHANGED)


def _take_of_any(log: Any, feed: str, operations: int = 0) -> int:
    log._database.steps = replace(log._database.steps, check_feed=_nothing)
    return _TAKE(log, feed, operations)


_TAKE = SqliteLog.take


# An erasure drops the entries, so that later entries of their pages get other slots.
_SCRUB = Scrubber.scrub


def _dropped(scrubber: Scrubber, page: Page) -> Scrubbed | None:
    found = _SCRUB(scrubber, page)
    if found is None:
        return None
    kept = [line for line in found.page.lines if not is_erased(line)] or found.page.lines[:1]
    return replace(found, page=replace(found.page, body=encode(kept)))


# A feed that is created again has the key of its predecessor.
keeps_key = instead(records.FeedRecord, "key", property(lambda record: record.name))
# Its log begins with page 1, and no cursor is lost.
begins_at_one = all_of(
    instead(Feeds, "_skip", _nothing), instead(service, "jump_end", lambda last_page: 1)
)
# A removal ends with the records.
removes_some = instead(SqliteFeedData, "_tables", lambda data: ["claims", "records"])
# A request that found the feed before its deletion may still append.
appends_late = instead(SqliteLog, "take", _take_of_any)
drops_entries = instead(Scrubber, "scrub", _dropped)


# An erasure ends with the first pages that it has read.
def _save_all(progress: ErasureProgress, feed: str, erasure: Erasure, **changed: Any) -> None:
    if changed.get("phase", erasure.phase) is Phase.LOG and changed["page"] > erasure.page:
        changed |= {"phase": Phase.PARKED, "page": 0}
    _SAVE(progress, feed, erasure, **changed)


_SAVE = ErasureProgress.save
ends_early = instead(ErasureProgress, "save", _save_all)
