"""The stores of `consumers`; `tests/contract` has what every adapter keeps to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.consumers.consumer import Change, Consumer, Note, Parked


class ConsumerStore(Protocol):
    """The named consumers of each feed."""

    def consumer(self, feed: str, name: str) -> Consumer | None:
        """Strongly consistent."""

    def consumers(self, feed: str) -> Sequence[Consumer]:
        """All of *feed*, by name. Strongly consistent."""

    def write(self, feed: str, name: str, version: int, change: Change) -> bool:
        """
        Write *change* if *version* is still there, 0 for none; False when it is not.

        What is stored has `version + 1`, whatever *change* says. All of it or nothing.
        """


class ConsumerShelf(Protocol):
    """What was put aside of named consumers, and what operators did to them."""

    def parked(self, feed: str, name: str) -> Sequence[Parked]:
        """By id. Strongly consistent."""

    def notes(self, feed: str, name: str) -> Sequence[Note]:
        """At most `limits.NOTES_MAX`, the latest first."""
