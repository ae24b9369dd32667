"""What a consumer asks a feed for, whatever the transport."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Subscription:
    """
    Of *feed*, the objects of *types* below *parents* (empty: all of them).

    With *leave*, an object that leaves this filter is announced once more, as `leave`. The
    *password* never appears in a text of this value.
    """

    feed: str = "main"
    types: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    leave: bool = False
    password: str = field(default="", repr=False)
