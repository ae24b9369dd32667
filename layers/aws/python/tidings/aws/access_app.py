"""The composition root's part for who is let in: passwords, and what says by itself whose it is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from . import app, clients
from .clock import now_ms

if TYPE_CHECKING:
    from tidings.core.access import Bearers, Guard


def guard() -> Guard:
    """Built once, by `app.guard`."""
    from tidings.core.access import Guard
    from tidings.core.passwords import Verifier

    verifier = Verifier(os.urandom(app.KEY_BYTES))
    return Guard(app.profiles(), verifier, app.settings().open, (key_ring(),))


def key_ring() -> Bearers:
    from tidings.core.keyring import KeyRing
    from tidings.core.metering import Meter

    from .dynamodb_keys import DynamoDBKeyCounts, DynamoDBKeys

    at = clients.dynamodb(), app.settings().control_table
    return KeyRing(DynamoDBKeys(*at), now_ms, Meter(DynamoDBKeyCounts(*at), now_ms))
