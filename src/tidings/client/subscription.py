"""The subscription of a consumer to a feed, the same for every transport."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

FIELDS = ("types", "parents", "ids")  # fields of a request; each is a list of values
_ARRAY = '["'  # the beginning of a list as text if it is JSON


def as_text(values: Iterable[str]) -> str:
    """
    Return *values* as a list in a URL: comma-separated, or JSON if one contains a comma.

    An empty value matches nothing. If *values* has only empty ones, return a list that matches
    nothing.
    """
    kept = [value for value in values if value]
    text = ",".join(kept) or ","
    plain = len(kept) == text.count(",") + 1 and not text.startswith(_ARRAY)
    return text if plain or not kept else json.dumps(kept, ensure_ascii=False)


def from_text(text: str) -> list[str]:
    """
    Return the values of a list as a user writes it.

    Strip spaces around the values, unless the list is JSON.

    Raises:
        ValueError: it begins like a JSON array but is not an array of strings.
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
    The objects of *feed* with *types*, below *parents*, with *ids*; an empty list selects all.

    An id that ends with `*` selects every id with that prefix. With *leave*, an object that stops
    matching the filter is announced once more, as `leave`. The *password* never appears in the
    `repr`.
    """

    feed: str = "main"
    types: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    leave: bool = False
    password: str = field(default="", repr=False)
    ids: tuple[str, ...] = ()

    def lists(self) -> dict[str, list[str]]:
        """Return the lists of the filter by request field, without the empty ones."""
        return {name: list(values) for name in FIELDS if (values := getattr(self, name))}
