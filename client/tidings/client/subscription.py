"""What a consumer asks a feed for, whatever the transport."""

from __future__ import annotations

from dataclasses import dataclass, field

FIELDS = ("types", "parents", "ids")  # of a request, each a list of values


@dataclass(frozen=True, slots=True)
class Subscription:
    """
    Of *feed*, the objects of *types*, below *parents*, with *ids* (empty: all of them). An id that
    ends with `*` stands for all that begin so.

    With *leave*, an object that leaves this filter is announced once more, as `leave`. The
    *password* never appears in a text of this value.
    """

    feed: str = "main"
    types: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    leave: bool = False
    password: str = field(default="", repr=False)
    ids: tuple[str, ...] = ()

    def lists(self) -> dict[str, list[str]]:
        """What of the feed is wanted, by the fields of a request; what is empty is left out."""
        return {name: list(values) for name in FIELDS if (values := getattr(self, name))}
