"""
Follow a feed and post to it.

`Consumer` acknowledges event by event, `follow` is the plain loop beneath it, `Poster` posts;
`Worker` works for a consumer whose position the feed keeps.
Each is imported when it is first used: the command line starts without what it does not need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .buffers import MemoryBuffer as MemoryBuffer
    from .buffers import SqliteBuffer as SqliteBuffer
    from .consumer import Consumer as Consumer
    from .errors import AccessDenied as AccessDenied
    from .errors import BackoffFailed as BackoffFailed
    from .errors import ClientError as ClientError
    from .errors import FellOff as FellOff
    from .errors import Lost as Lost
    from .errors import Refused as Refused
    from .errors import Unwritten as Unwritten
    from .errors import WrongState as WrongState
    from .errors import WrongUrl as WrongUrl
    from .events import Event as Event
    from .following import follow as follow
    from .intake import Delivery as Delivery
    from .listener import Listener as Listener
    from .named_consumers import NamedConsumers as NamedConsumers
    from .outbox import publish_with as publish_with
    from .post import Poster as Poster
    from .worker import Message as Message
    from .worker import Worker as Worker

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
    "MemoryBuffer": "buffers",
    "SqliteBuffer": "buffers",
    "Consumer": "consumer",
    "Delivery": "intake",
    "Event": "events",
    "Listener": "listener",
    "Message": "worker",
    "NamedConsumers": "named_consumers",
    "Poster": "post",
    "Worker": "worker",
    "follow": "following",
    "publish_with": "outbox",
    **dict.fromkeys(_ERRORS, "errors"),
}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)
