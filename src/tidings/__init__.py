"""Tidings: a change feed for AWS and for a single machine.

The names listed here are the public Python interface of producers and consumers. Each one is
imported when it is first used, so that a Lambda function does not load the client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from tidings.core.version import VERSION as __version__

if TYPE_CHECKING:
    from tidings.client import Consumer as Consumer
    from tidings.client import Event as Event
    from tidings.client import Fold as Fold
    from tidings.client import Listener as Listener
    from tidings.client import NamedConsumers as NamedConsumers
    from tidings.client import Poster as Poster
    from tidings.client import Worker as Worker
    from tidings.client import follow as follow

_CLIENT = ("Consumer", "Event", "Fold", "Listener", "NamedConsumers", "Poster", "Worker", "follow")
__all__ = ["__version__", *_CLIENT]


def __getattr__(name: str) -> object:
    if name not in _CLIENT:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("tidings.client"), name)
