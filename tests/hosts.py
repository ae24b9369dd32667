"""The host that a suite runs on: a server, or with `--on twin` a twin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.server.running import Server

if TYPE_CHECKING:
    import pytest

NAMES = ("server", "twin")


def host(name: str) -> type[Server]:
    if name == "server":
        return Server
    from tidings.local.running import Twin  # loads what runs on AWS

    return Twin


def wanted(config: pytest.Config) -> type[Server]:
    """What the option says."""
    return host(config.getoption("--on"))
