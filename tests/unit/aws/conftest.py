"""Fixtures for the tests of clients of AWS."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials and a Region, from the environment."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "local")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")


@pytest.fixture
def closed_address() -> Iterator[str]:
    """Yield an address at which no process accepts connections."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"
