"""The stores of `triton`. `tests/contract` has the tests that every adapter passes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.triton.registration import Listener, Registered


class Registry(Protocol):
    """The last connection that registered for each resource of a feed under an instance's name."""

    def enter(self, feed: str, connection_id: str, listener: Listener) -> Sequence[str]:
        """
        Register the connection for each of its resources; return the connections that it replaces.
        """

    def leave(self, feed: str, connection_id: str, listener: Listener) -> None:
        """Remove the entries that this connection still has."""

    def registered(self, feed: str) -> Sequence[Registered]:
        """Return all entries of *feed*, by instance and resource. Strongly consistent."""
