"""Each test has a feed of its own, so that one set of tables serves them all."""

from __future__ import annotations

from itertools import count

import pytest

# The contracts are not test files themselves; without this their failures show no values.
for _each in ("claim", "connection", "follower", "log", "profile", "relay", "state"):
    pytest.register_assert_rewrite(f"tests.contract.{_each}_store")
for _name in ("spill", "tallies"):
    pytest.register_assert_rewrite(f"tests.contract.{_name}")

_NUMBERS = count(1)


@pytest.fixture
def feed() -> str:
    return f"feed-{next(_NUMBERS)}"
