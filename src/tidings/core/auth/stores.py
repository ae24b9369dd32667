"""The stores of `auth`; `tests/contract` has what every adapter keeps to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidings.core.auth.keys import Key


class Keys(Protocol):
    """The keys of each feed."""

    def key(self, feed: str, name: str) -> Key | None:
        """
        The key with this id.

        One that was made before the call is found; what was changed in it counts a second later
        at the latest.
        """

    def keys(self, feed: str) -> Iterator[Key]:
        """All of *feed*, by id; thousands of them are read in portions."""

    def save(self, feed: str, key: Key) -> bool:
        """
        Write *key* if `key.version` is still there; False when it is not.

        What is stored has `key.version + 1`; version 0 makes a new one.
        """


class KeyHolds(Protocol):
    """The streams that each key holds open."""

    def hold(self, feed: str, who: str, name: str, *, until_ms: int, now_ms: int) -> int:
        """Add *name* to what *who* holds; how many there are then whose time is not over."""

    def let_go(self, feed: str, who: str, name: str, until_ms: int) -> None:
        """It is held no more."""


class KeyCounts(Protocol):
    """How much of its rate each key has used."""

    def add(self, feed: str, name: str, window: int, requests: int) -> int:
        """Add *requests* to those of the key in *window*; all that were counted there by then."""
