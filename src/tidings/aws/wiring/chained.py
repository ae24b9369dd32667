"""The composition root's part for what other parts ask about chained feeds."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from tidings.aws.runtime import clients
from tidings.aws.runtime.clock import now_ms
from tidings.aws.wiring import adapters

if TYPE_CHECKING:
    from tidings.aws.dynamodb.relays import DynamoDBRelays
    from tidings.core.replication.commit_times import CopiedUntil
    from tidings.core.replication.source import Sources
    from tidings.core.replication.write_guard import WriteGuard
    from tidings.core.settings.profiles import Losses


@cache
def store() -> DynamoDBRelays:
    from tidings.aws.dynamodb.relays import DynamoDBRelays

    settings = adapters.settings()
    return DynamoDBRelays(clients.dynamodb(), settings.log_table, settings.control_table)


@cache
def copies() -> Sources:
    """The feeds that are copies now. Most deployments have none: then nothing is loaded."""
    sources = adapters.settings().sources
    if not sources:
        return sources
    from tidings.core.replication.copies import Copies

    return Copies(sources, store, now_ms)


@cache
def copied_until() -> CopiedUntil:
    from tidings.core.replication.commit_times import CopiedUntil

    return CopiedUntil(copies(), store())


@cache
def losses() -> Losses:
    from tidings.core.settings.profiles import Losses

    if not adapters.settings().sources:
        return Losses(adapters.profiles())
    from tidings.core.replication.commit_times import CopiedLosses

    return Losses(adapters.profiles(), CopiedLosses(copies(), store()))


@cache
def writable() -> WriteGuard:
    """Keeps writers off chained feeds; only a refusal loads what tells where to post instead."""
    from tidings.core.replication.write_guard import WriteGuard

    return WriteGuard(copies(), _master)


def _master(feed: str) -> str:
    """As the relay of *feed* has heard; "" where it has not, or where nobody can tell now."""
    from tidings.core.errors import TidingsError

    try:
        return store().relay(feed).master
    except TidingsError:
        return ""
