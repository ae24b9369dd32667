"""The named consumers of a feed, and every change of one on top of what others wrote meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.consumers.consumer import Change
from tidings.core.errors import InvalidConsumer, Unavailable, UnknownConsumer
from tidings.core.model.feeds import NAME, NAME_RULE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidings.core.consumers.consumer import Consumer
    from tidings.core.consumers.stores import ConsumerStore


def check_name(name: str) -> str:
    """
    *name* if it can name a consumer.

    Raises:
        InvalidConsumer: it cannot. A consumer without a name of its own would begin anew with
            each start.
    """
    if not NAME.fullmatch(name):
        raise InvalidConsumer(NAME_RULE, field="consumer", value=name)
    return name


@dataclass(frozen=True, slots=True)
class Book:
    store: ConsumerStore

    def consumer(self, feed: str, name: str) -> Consumer:
        """
        Raises:
            InvalidConsumer, UnknownConsumer: there can be none, or there is none.
        """
        consumer = self.store.consumer(feed, check_name(name))
        if consumer is None:
            raise UnknownConsumer("no such consumer of this feed", field="consumer", value=name)
        return consumer

    def change(self, feed: str, name: str, change: Callable[[Consumer], Change]) -> Consumer:
        """
        What *change* makes of it; where it is removed, as it was. It may be called again.

        Raises:
            InvalidConsumer, UnknownConsumer: see `consumer`.
            Unavailable: others kept writing.
        """
        for _ in range(limits.CONSUMER_ATTEMPTS_MAX):
            standing = self.consumer(feed, name)
            made = change(standing)
            if made == Change(standing):
                return standing
            if self.store.write(feed, name, standing.version, made):
                return made.consumer or standing
        raise Unavailable(f"{feed}/{name} kept changing")
