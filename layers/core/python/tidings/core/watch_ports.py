"""What fan-out needs: where live subscriptions are found, and where they are filed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .connections import Watch


class WatchIndex(Protocol):
    """Live subscriptions as they are filed under each value they filter on. Strongly consistent."""

    def find(self, feed: str, key: str) -> Sequence[Watch]:
        """The subscriptions filed under *key*."""
        ...

    def all(self, feed: str) -> Sequence[Watch]:
        """Every subscription of *feed*, once each."""
        ...

    def few(self, feed: str, at_most: int) -> Sequence[Watch] | None:
        """
        The same by one read; None if more than *at_most* are filed.

        A subscription counts once for each key that it is filed under.
        """
        ...


class WatchStore(WatchIndex, Protocol):
    """Where they are filed."""

    def add(self, feed: str, watch: Watch) -> None:
        """File *watch* under each of its keys."""
        ...

    def remove(self, feed: str, watch: Watch) -> None:
        """Take it out again; nothing happens when it is not there."""
        ...
