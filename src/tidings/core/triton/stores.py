"""The stores of `triton`; `tests/contract` has what every adapter keeps to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidings.core.triton.registration import Listener, Registered


class Registry(Protocol):
    """Which connection listens for a resource of a feed under an instance's name: the last one."""

    def enter(self, feed: str, connection_id: str, listener: Listener) -> Sequence[str]:
        """File the connection for each of its resources; the connections it took one from."""

    def leave(self, feed: str, connection_id: str, listener: Listener) -> None:
        """Take out what is still filed for this connection."""

    def registered(self, feed: str) -> Sequence[Registered]:
        """All entries of *feed*, by instance and resource. Strongly consistent."""
