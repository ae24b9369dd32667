"""The part of the composition root for authentication: passwords, keys and tokens."""

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
    from tidings.core.auth.quotas import KeyUsage, RateLimiter, ReadCharge, StreamQuota
    from tidings.core.log.preconditions import Precondition
    from tidings.core.settings.revocations import Admission


@cache
def guard() -> Guard:
    from tidings.core.auth.guard import FailedAttemptLimiter, Guard
    from tidings.core.auth.passwords import Verifier

    verifier = Verifier(os.urandom(adapters.KEY_BYTES))
    return Guard(
        profiles=adapters.profiles(),
        verifier=verifier,
        open=adapters.settings().open,
        failures=FailedAttemptLimiter(now_ms, limits.MISSES_MAX),
        bearers=(KeysWhenShown(), *issued()),
    )


@cache
def issued() -> Sequence[Bearers]:
    """Return the tokens of the issuer that the deployment names, if any."""
    issuer = adapters.settings().issuer
    if issuer is None:
        return ()
    from tidings.http.outbound.oidc import Tokens, ask_over_http

    authorities = clients.ca_certs()
    return (Tokens(issuer, lambda url: ask_over_http(url, authorities)),)


class KeysWhenShown:
    """
    Implement `Bearers`, and load the code for keys with the first key that is presented.

    A process that sees only passwords starts as fast as without keys.
    """

    def __init__(self) -> None:
        self._ring: Bearers | None = None

    def knows(self, given: Credential) -> bool:
        from tidings.core.auth.guard import KEY_PREFIX  # already loaded by the caller

        return given.secret.startswith(KEY_PREFIX) and self._loaded().knows(given)

    def allowed(self, feed: str, role: Role, given: Credential) -> Allowed:
        return self._loaded().allowed(feed, role, given)

    def _loaded(self) -> Bearers:
        if self._ring is None:
            self._ring = key_ring()
        return self._ring


@cache
def key_usage() -> KeyUsage:
    from tidings.aws.dynamodb.keys import DynamoDBKeyUsage

    return DynamoDBKeyUsage(clients.dynamodb(), adapters.settings().control_table)


@cache
def holding() -> StreamQuota:
    from tidings.core.auth.quotas import StreamQuota

    return StreamQuota(key_usage(), now_ms, adapters.new_id)


@cache
def meter() -> RateLimiter:
    from tidings.core.auth.quotas import RateLimiter

    return RateLimiter(key_usage(), now_ms)


def charge_for(feed: str, admission: Admission) -> ReadCharge:
    """Implements `Charges`; the limiter is built for the first key with a rate."""
    from tidings.core.auth.quotas import free

    return (meter().charge_for if admission.rate else free)(feed, admission)


@cache
def key_ring() -> Bearers:
    from tidings.aws.dynamodb.keys import DynamoDBKeys
    from tidings.core.auth.guard import FailedAttemptLimiter
    from tidings.core.auth.keys import KeyRing

    keys = DynamoDBKeys(clients.dynamodb(), adapters.settings().control_table)
    return KeyRing(keys, now_ms, FailedAttemptLimiter(now_ms, limits.MISSES_MAX), meter())


def required(feed: str, allowed: Allowed, lines: Sequence[str]) -> Precondition | None:
    """Implements `Preconditions`; its code is loaded only for keys restricted by parents."""
    if allowed.bound.parents is None:
        return None
    from tidings.core.ingest.write_bounds import Bounds

    return Bounds(adapters.state(), adapters.reader(), sleep_ms)(feed, allowed, lines)
