"""The composition root's part for who is let in: passwords, and what says by itself whose it is."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

from tidings.aws.runtime import clients
from tidings.aws.runtime.clock import now_ms, sleep_ms
from tidings.aws.wiring import adapters
from tidings.core import limits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.auth.guard import Allowed, Bearers, Credential, Guard, Role
    from tidings.core.auth.rate_limit import Meter, ReadCharge
    from tidings.core.auth.stream_limit import Holding
    from tidings.core.log.preconditions import Precondition
    from tidings.core.settings.revocations import Admission


@cache
def guard() -> Guard:
    from tidings.core.auth.guard import Guard
    from tidings.core.auth.guessing_limit import Misses
    from tidings.core.auth.passwords import Verifier

    verifier = Verifier(os.urandom(adapters.KEY_BYTES))
    misses, bearers = Misses(now_ms, limits.MISSES_MAX), (KeysWhenShown(), *issued())
    return Guard(adapters.profiles(), verifier, adapters.settings().open, misses, bearers)


@cache
def issued() -> Sequence[Bearers]:
    """Tokens, where the deployment names an issuer."""
    issuer = adapters.settings().issuer
    if issuer is None:
        return ()
    from tidings.http.outbound.oidc import Tokens, ask_over_http

    authorities = clients.ca_certs()
    return (Tokens(issuer, lambda url: ask_over_http(url, authorities)),)


class KeysWhenShown:
    """
    Implements `Bearers`: what keys take is loaded with the first one that is shown.

    A process that sees passwords alone starts as fast as without keys.
    """

    def __init__(self) -> None:
        self._ring: Bearers | None = None

    def knows(self, given: Credential) -> bool:
        from tidings.core.auth.guard import KEY_PREFIX  # loaded by whoever made *given*

        return given.secret.startswith(KEY_PREFIX) and self._loaded().knows(given)

    def allowed(self, feed: str, role: Role, given: Credential) -> Allowed:
        return self._loaded().allowed(feed, role, given)

    def _loaded(self) -> Bearers:
        if self._ring is None:
            self._ring = key_ring()
        return self._ring


@cache
def holding() -> Holding:
    from tidings.aws.dynamodb.keys import DynamoDBKeyHolds
    from tidings.core.auth.stream_limit import Holding

    store = DynamoDBKeyHolds(clients.dynamodb(), adapters.settings().control_table)
    return Holding(store, now_ms, adapters.new_id)


@cache
def meter() -> Meter:
    from tidings.aws.dynamodb.keys import DynamoDBKeyCounts
    from tidings.core.auth.rate_limit import Meter

    return Meter(DynamoDBKeyCounts(clients.dynamodb(), adapters.settings().control_table), now_ms)


def charge_for(feed: str, admission: Admission) -> ReadCharge:
    """Implements `Charges`; the meter is built for the first one who has a rate."""
    from tidings.core.auth.rate_limit import free

    return (meter().charge_for if admission.rate else free)(feed, admission)


@cache
def key_ring() -> Bearers:
    from tidings.aws.dynamodb.keys import DynamoDBKeys
    from tidings.core.auth.guessing_limit import Misses
    from tidings.core.auth.key_auth import KeyRing

    keys = DynamoDBKeys(clients.dynamodb(), adapters.settings().control_table)
    return KeyRing(keys, now_ms, Misses(now_ms, limits.MISSES_MAX), meter())


def required(feed: str, allowed: Allowed, lines: Sequence[str]) -> Precondition | None:
    """Implements `Preconditions`; what it takes is loaded for keys bounded by parents alone."""
    if allowed.bound.parents is None:
        return None
    from tidings.core.ingest.write_bounds import Bounds

    return Bounds(adapters.state(), adapters.reader(), sleep_ms)(feed, allowed, lines)
