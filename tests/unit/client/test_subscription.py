"""What a client may ask a feed for."""

from __future__ import annotations

import inspect
from dataclasses import fields

from tests.conformance.scene import FILTERS
from tidings.client import Consumer, follow
from tidings.client.address import FIELDS, Subscription
from tidings.client.cli.tail import tail
from tidings.core.model import filters


def test_all_that_a_feed_filters_by_can_be_asked_for() -> None:
    """In code, on the command line, and by the suite that tries servers: each by itself."""
    options = {option for each in tail.params for option in each.opts}

    assert filters.FIELDS == FIELDS == FILTERS
    assert {each.name for each in fields(Subscription)} >= {*FIELDS}
    assert {*inspect.signature(Consumer).parameters} >= {*FIELDS}
    assert {*inspect.signature(follow).parameters} >= {*FIELDS}
    assert options >= {f"--{name}" for name in FIELDS}
