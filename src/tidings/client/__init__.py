"""Follow a feed and post to it.

A `Consumer` yields events to be acknowledged, and saves its position in a file. `follow` yields
events without acknowledgements. `Poster` posts operations. `Fold` is a copy of the objects of a
feed that verifies itself. `Worker` is a worker of a named consumer; the feed stores the position of
that consumer. `Erasures` erases objects. `Feeds` creates and deletes feeds. `Listener` receives the
items of Triton's protocol. `publish_with` writes to a feed's outbox. Each class is imported when it
is first used, so that the command line starts fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidings.client.consumer import Consumer as Consumer
    from tidings.client.consumer import Delivery as Delivery
    from tidings.client.errors import AccessDenied as AccessDenied
    from tidings.client.errors import BackoffFailed as BackoffFailed
    from tidings.client.errors import ClientError as ClientError
    from tidings.client.errors import FellOff as FellOff
    from tidings.client.errors import Lost as Lost
    from tidings.client.errors import Refused as Refused
    from tidings.client.errors import Unwritten as Unwritten
    from tidings.client.errors import WrongState as WrongState
    from tidings.client.errors import WrongUrl as WrongUrl
    from tidings.client.events import Event as Event
    from tidings.client.feed_api import Erasures as Erasures
    from tidings.client.feed_api import NamedConsumers as NamedConsumers
    from tidings.client.feeds import Feeds as Feeds
    from tidings.client.fold import Fold as Fold
    from tidings.client.listener import Bootstrap as Bootstrap
    from tidings.client.listener import Ended as Ended
    from tidings.client.listener import Item as Item
    from tidings.client.listener import Listener as Listener
    from tidings.client.listener import Live as Live
    from tidings.client.listener import MemoryBuffer as MemoryBuffer
    from tidings.client.listener import Object as Object
    from tidings.client.listener import SqliteBuffer as SqliteBuffer
    from tidings.client.operator import Operator as Operator
    from tidings.client.outbox import publish_with as publish_with
    from tidings.client.poster import Poster as Poster
    from tidings.client.reconnect import follow as follow
    from tidings.client.worker import Message as Message
    from tidings.client.worker import Worker as Worker

_MODULES = {
    "consumer": ("Consumer", "Delivery"),
    "errors": (
        "AccessDenied",
        "BackoffFailed",
        "ClientError",
        "FellOff",
        "Lost",
        "Refused",
        "Unwritten",
        "WrongState",
        "WrongUrl",
    ),
    "events": ("Event",),
    "feed_api": ("Erasures", "NamedConsumers"),
    "feeds": ("Feeds",),
    "fold": ("Fold",),
    "listener": (
        "Bootstrap",
        "Ended",
        "Item",
        "Listener",
        "Live",
        "MemoryBuffer",
        "Object",
        "SqliteBuffer",
    ),
    "operator": ("Operator",),
    "outbox": ("publish_with",),
    "poster": ("Poster",),
    "reconnect": ("follow",),
    "worker": ("Message", "Worker"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
