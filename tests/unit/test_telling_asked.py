"""What a feed that copies another one may ask it, and how it is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from tidings.core import limits, telling
from tidings.core.cursors import PAGE_END, Place
from tidings.core.errors import InvalidCursor, InvalidFilter, InvalidPortion, Rejected
from tidings.core.filters import parse
from tidings.core.selections import Mod, Selection
from tidings.core.telling import PagesAsked, RowsAsked

from tests.unit.scene import NOW


def test_what_is_asked() -> None:
    """Everything may be left out, but for the bucket; more than is allowed is less to wait."""
    place = Place(7, PAGE_END, NOW // 1000)
    asked = {"after": place.encode(), "types": "a,b", "share": "mod:2:1", "size": "9", "block": "3"}
    selection = Selection(parse("a,b", None), Mod(2, frozenset({1})))

    assert telling.parse_pages({}) == PagesAsked()
    assert telling.parse_pages(several(asked)) == PagesAsked(place, selection, 9, 3)
    assert telling.parse_pages({"block": ["999"]}).block_s == limits.PORTION_BLOCK_S_MAX
    assert telling.parse_pages({"parents": ["p"]}).selection.filter.leave
    assert telling.parse_rows({"bucket": ["0"]}) == RowsAsked(0)
    asked = {"bucket": "63", "after": "video/ä", "parents": "p"}
    assert telling.parse_rows(several(asked)) == RowsAsked(
        63, "video/ä", Selection(parse(None, "p", "true"))
    )


REFUSED: dict[str, tuple[Callable[..., object], dict[str, str], type[Rejected]]] = {
    "a word as the place": (telling.parse_pages, {"after": "now"}, InvalidCursor),
    "no place": (telling.parse_pages, {"after": "x"}, InvalidCursor),
    "an id of a row": (telling.parse_pages, {"after": f"{0:018x}800001"}, InvalidCursor),
    "no size": (telling.parse_pages, {"size": "0"}, InvalidPortion),
    "a size that is too large": (telling.parse_pages, {"size": "4194305"}, InvalidPortion),
    "a negative size": (telling.parse_pages, {"size": "-1"}, InvalidPortion),
    "no time": (telling.parse_pages, {"block": "soon"}, InvalidPortion),
    "no share": (telling.parse_pages, {"share": "mod:2:2"}, InvalidFilter),
    "too many types": (
        telling.parse_pages,
        {"types": ",".join(map(str, range(101)))},
        InvalidFilter,
    ),
    "no bucket": (telling.parse_rows, {}, InvalidPortion),
    "a bucket that is none": (telling.parse_rows, {"bucket": "64"}, InvalidPortion),
    "a key that is too long": (
        telling.parse_rows,
        {"bucket": "1", "after": "ä" * 513},
        InvalidPortion,
    ),
}


@pytest.mark.parametrize(("parse_it", "query", "error"), REFUSED.values(), ids=list(REFUSED))
def test_what_is_refused(
    parse_it: Callable[..., object], query: dict[str, str], error: type[Rejected]
) -> None:
    """By the name of the parameter and its rule."""
    with pytest.raises(error) as refused:
        parse_it(several(query))
    assert refused.value.field in query or refused.value.field == "bucket"


def several(query: Mapping[str, str]) -> dict[str, list[str]]:
    return {name: [value] for name, value in query.items()}
