"""What a feed that copies another one may ask it, and how it is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from tidings.core import limits
from tidings.core.errors import InvalidCursor, InvalidFilter, InvalidPortion, Rejected
from tidings.core.model.cursors import PAGE_END, Place
from tidings.core.model.filters import parse
from tidings.core.replication import serve
from tidings.core.replication.selection import Mod, Selection
from tidings.core.replication.serve import PagesAsked, RowsAsked

from tests.core.scene import NOW


def test_what_is_asked() -> None:
    """Everything may be left out, but for the bucket; more than is allowed is less to wait."""
    place = Place(7, PAGE_END, NOW // 1000)
    query = {"after": place.encode(), "types": "a,b", "share": "mod:2:1", "size": "9", "block": "3"}
    selection = Selection(parse("a,b", None), Mod(2, frozenset({1})))

    assert serve.parse_pages({}) == PagesAsked()
    assert serve.parse_pages(several(query)) == PagesAsked(place, selection, 9, 3)
    assert serve.parse_pages({"block": ["999"]}).block_s == limits.PORTION_BLOCK_S_MAX
    assert serve.parse_pages({"parents": ["p"]}).selection.filter.leave
    assert serve.parse_rows({"bucket": ["0"]}) == RowsAsked(0)
    query = {"bucket": "63", "after": "video/ä", "parents": "p"}
    assert serve.parse_rows(several(query)) == RowsAsked(
        63, "video/ä", Selection(parse(None, "p", "true"))
    )


REFUSED: dict[str, tuple[Callable[..., object], dict[str, str], type[Rejected]]] = {
    "a word as the place": (serve.parse_pages, {"after": "now"}, InvalidCursor),
    "no place": (serve.parse_pages, {"after": "x"}, InvalidCursor),
    "an id of a row": (serve.parse_pages, {"after": f"{0:018x}800001"}, InvalidCursor),
    "no size": (serve.parse_pages, {"size": "0"}, InvalidPortion),
    "a size that is too large": (serve.parse_pages, {"size": "4194305"}, InvalidPortion),
    "a negative size": (serve.parse_pages, {"size": "-1"}, InvalidPortion),
    "no time": (serve.parse_pages, {"block": "soon"}, InvalidPortion),
    "no share": (serve.parse_pages, {"share": "mod:2:2"}, InvalidFilter),
    "too many types": (
        serve.parse_pages,
        {"types": ",".join(map(str, range(101)))},
        InvalidFilter,
    ),
    "no bucket": (serve.parse_rows, {}, InvalidPortion),
    "a bucket that is none": (serve.parse_rows, {"bucket": "64"}, InvalidPortion),
    "a key that is too long": (
        serve.parse_rows,
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
