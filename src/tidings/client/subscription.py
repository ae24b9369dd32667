"""What a consumer asks a feed for, whatever the transport."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

FIELDS = ("types", "parents", "ids")  # of a request, each a list of values
_ARRAY = '["'  # what a list as text begins with if it is JSON


def as_text(values: Iterable[str]) -> str:
    """
    Return *values* as a list in a URL: comma-separated, or JSON if one contains a comma.

    Empty values match nothing, so a list of nothing else is one that matches nothing.
    """
    kept = [value for value in values if value]
    text = ",".join(kept) or ","
    plain = len(kept) == text.count(",") + 1 and not text.startswith(_ARRAY)
    return text if plain or not kept else json.dumps(kept, ensure_ascii=False)


def from_text(text: str) -> list[str]:
    """
    Return the values of a list as a user writes it, without blanks around them unless it is JSON.

    Raises:
        ValueError: it begins like a JSON array, and is not one of strings.
    """
    if not text.startswith(_ARRAY):
        return [value.strip() for value in text.split(",") if value.strip()]
    values = json.loads(text)
    if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
        raise ValueError("must be an array of strings")
    return values


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
