"""The composition root's part for who is let in: passwords, and what says by itself whose it is."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.access import KEY_PREFIX

from . import app, clients
from .clock import now_ms, sleep_ms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.access import Allowed, Bearers, Credential, Guard, Role
    from tidings.core.admissions import Admission
    from tidings.core.bounds import Precondition
    from tidings.core.holding import Holding
    from tidings.core.metering import Meter, ReadCharge


def guard() -> Guard:
    """Built once, by `app.guard`."""
    from tidings.core.access import Guard
    from tidings.core.misses import Misses
    from tidings.core.passwords import Verifier

    verifier = Verifier(os.urandom(app.KEY_BYTES))
    misses, bearers = Misses(now_ms, limits.MISSES_MAX), (KeysWhenShown(), *issued())
    return Guard(app.profiles(), verifier, app.settings().open, misses, bearers)


def issued() -> Sequence[Bearers]:
    """Tokens, where the deployment names an issuer."""
    issuer = app.settings().issuer
    if issuer is None:
        return ()
    from .oidc import Tokens, ask_over_http

    return (Tokens(issuer, ask_over_http),)


class KeysWhenShown:
    """
    Implements `Bearers`: what keys take is loaded with the first one that is shown.

    A process that sees passwords alone starts as fast as without keys.
    """

    def __init__(self) -> None:
        self._ring: Bearers | None = None

    def knows(self, given: Credential) -> bool:
        return given.secret.startswith(KEY_PREFIX) and self._loaded().knows(given)

    def allowed(self, feed: str, role: Role, given: Credential) -> Allowed:
        return self._loaded().allowed(feed, role, given)

    def _loaded(self) -> Bearers:
        if self._ring is None:
            self._ring = key_ring()
        return self._ring


def holding() -> Holding:
    from tidings.core.holding import Holding

    from .dynamodb_keys import DynamoDBKeyHolds

    store = DynamoDBKeyHolds(clients.dynamodb(), app.settings().control_table)
    return Holding(store, now_ms, app.new_id)


@cache
def meter() -> Meter:
    from tidings.core.metering import Meter

    from .dynamodb_keys import DynamoDBKeyCounts

    return Meter(DynamoDBKeyCounts(clients.dynamodb(), app.settings().control_table), now_ms)


def charge_for(feed: str, admission: Admission) -> ReadCharge:
    """Implements `Charges`; the meter is built for the first one who has a rate."""
    from tidings.core.metering import free

    return (meter().charge_for if admission.rate else free)(feed, admission)


def key_ring() -> Bearers:
    from tidings.core.keyring import KeyRing
    from tidings.core.misses import Misses

    from .dynamodb_keys import DynamoDBKeys

    keys = DynamoDBKeys(clients.dynamodb(), app.settings().control_table)
    return KeyRing(keys, now_ms, Misses(now_ms, limits.MISSES_MAX), meter())


def required(feed: str, allowed: Allowed, lines: Sequence[str]) -> Precondition | None:
    """Implements `Preconditions`; what it takes is loaded for keys bounded by parents alone."""
    if allowed.bound.parents is None:
        return None
    from tidings.core.bounds import Bounds

    return Bounds(app.state(), app.followers(), app.reader(), sleep_ms)(feed, allowed, lines)
