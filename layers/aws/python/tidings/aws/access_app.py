"""The composition root's part for who is let in: passwords, and what says by itself whose it is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from . import app, clients
from .clock import now_ms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.access import Bearers, Guard


def guard() -> Guard:
    """Built once, by `app.guard`."""
    from tidings.core.access import Guard
    from tidings.core.passwords import Verifier

    verifier = Verifier(os.urandom(app.KEY_BYTES))
    return Guard(app.profiles(), verifier, app.settings().open, (key_ring(), *issued()))


def issued() -> Sequence[Bearers]:
    """Tokens, where the deployment names an issuer."""
    issuer = app.settings().issuer
    if issuer is None:
        return ()
    from .oidc import Tokens, ask_over_http

    return (Tokens(issuer, ask_over_http),)


def key_ring() -> Bearers:
    from tidings.core.keyring import KeyRing
    from tidings.core.metering import Meter

    from .dynamodb_keys import DynamoDBKeyCounts, DynamoDBKeys

    at = clients.dynamodb(), app.settings().control_table
    return KeyRing(DynamoDBKeys(*at), now_ms, Meter(DynamoDBKeyCounts(*at), now_ms))
