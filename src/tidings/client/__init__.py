"""
Follow a feed and post to it.

`Consumer` acknowledges each event. `follow` is the loop below it. `Poster` posts. `Fold` is a copy
that verifies itself. `Worker` serves a named consumer, with the position in the feed. Each is
imported when it is first used, so that the command line starts fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidings.client.consume.consumer import Consumer as Consumer
    from tidings.client.consume.fold import Fold as Fold
    from tidings.client.consume.follow import follow as follow
    from tidings.client.consume.named_consumers import NamedConsumers as NamedConsumers
    from tidings.client.consume.prefetch import Delivery as Delivery
    from tidings.client.consume.worker import Message as Message
    from tidings.client.consume.worker import Worker as Worker
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
    from tidings.client.listen.buffers import MemoryBuffer as MemoryBuffer
    from tidings.client.listen.buffers import SqliteBuffer as SqliteBuffer
    from tidings.client.listen.listener import Listener as Listener
    from tidings.client.produce.dynamodb_outbox import publish_with as publish_with
    from tidings.client.produce.post import Poster as Poster

_ERRORS = (
    "AccessDenied",
    "BackoffFailed",
    "ClientError",
    "FellOff",
    "Lost",
    "Refused",
    "Unwritten",
    "WrongState",
    "WrongUrl",
)
_MODULES = {
    "MemoryBuffer": "listen.buffers",
    "SqliteBuffer": "listen.buffers",
    "Consumer": "consume.consumer",
    "Delivery": "consume.prefetch",
    "Event": "events",
    "Fold": "consume.fold",
    "Listener": "listen.listener",
    "Message": "consume.worker",
    "NamedConsumers": "consume.named_consumers",
    "Poster": "produce.post",
    "Worker": "consume.worker",
    "follow": "consume.follow",
    "publish_with": "produce.dynamodb_outbox",
    **dict.fromkeys(_ERRORS, "errors"),
}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)
