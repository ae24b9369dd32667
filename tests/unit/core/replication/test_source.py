"""Test selections and shares."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.scene import NOW, line, page
from tidings.core.changeagent.changes import Change, line_of
from tidings.core.errors import InvalidFilter
from tidings.core.model.filters import parse
from tidings.core.model.operations import event_of
from tidings.core.replication.source import (
    ALL,
    Mod,
    Range,
    Selection,
    hash_of,
    parse_share,
    select,
)

ANNS = Selection(parse(None, "user/ann", "true"))
CHANGE = line_of(Change("1"), name="n", now_ms=NOW)

HASH_MAX = 0xFFFF_FFFF  # the maximum of CRC-32


def test_the_hash_is_the_same_everywhere() -> None:
    """CRC-32 of the key's UTF-8: shares of other deployments and of later versions fit."""
    assert hash_of("123456789") == 0xCBF43926  # the check value of this CRC


@given(st.text(), st.integers(2, 9), st.integers(0, HASH_MAX - 1))
def test_D43_each_key_is_in_one_share(key: str, parts: int, cut: int) -> None:
    """This holds for shares by remainder and for shares by ranges."""
    mods = [Mod(parts, frozenset({part})) for part in range(parts)]
    ranges = [Range(0, cut), Range(cut + 1, HASH_MAX)]

    assert sum(share.holds(key) for share in mods) == 1
    assert sum(share.holds(key) for share in ranges) == 1


SHARES = [Mod(4, frozenset({0, 3})), Mod(1, frozenset({0})), Range(0, HASH_MAX), Range(7, 7)]


@pytest.mark.parametrize("share", SHARES, ids=lambda each: each.encode())
def test_a_share_reads_back(share: Mod | Range) -> None:
    """The text is that of the URL; an empty text means no share."""
    assert parse_share(share.encode()) == share
    assert parse_share("") is None


WRONG = [
    "mod",
    "mod:0:0",
    "mod:2:2",
    "mod:4097:0",
    "mod:2:",
    "mod:2:0,1",
    "range:00000002-00000001",
    "range:0-1",
    "range:00000000-0000000G",
    "all",
]


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_share(text: str) -> None:
    """The error names the rule and the value."""
    with pytest.raises(InvalidFilter, match="must be mod:PARTS") as refused:
        parse_share(text)
    assert (refused.value.field, refused.value.value) == ("share", text)


def test_everything_is_kept_as_it_is() -> None:
    """The page is returned without being read."""
    whole = page(7, line("a"), line("b"))
    assert select(whole, ALL) is whole


def test_slots_stay() -> None:
    """A selected page keeps its number, its time, and the slots of its remaining entries."""
    whole = page(7, line("a"), line("b", type="user"), line("c"))

    kept = select(whole, Selection(parse("video", None)))

    assert (kept.number, kept.at_ms, kept.slots) == (7, whole.at_ms, (0, 2))
    assert kept.lines == [whole.lines[0], whole.lines[2]]
    assert select(whole, Selection(parse("x", None))).slots == ()


def test_what_loses_its_parent_is_deleted() -> None:
    """An entry becomes a delete if the page's removed parents say so, or are unknown."""
    whole = page(7, line("a", parents=["user/ann"]), line("b"), line("c"))

    known = select(whole, ANNS, {1: ("user/ann",), 2: ("user/bob",)})
    unknown = select(whole, ANNS, None)

    assert [(slot, event_of(kept)) for slot, kept in known.entries()] == [
        (0, "update"),
        (1, "delete"),
    ]
    assert [event_of(kept) for _, kept in unknown.entries()] == ["update", "delete", "delete"]
    assert known.lines[1] == line("b", "delete")


def test_an_entry_without_an_object() -> None:
    """It is in every share, and in no type and no parent."""
    assert Selection(share=Mod(2, frozenset({0}))).keeps(CHANGE) == CHANGE
    assert Selection(share=Mod(2, frozenset({1}))).keeps(CHANGE) == CHANGE
    assert Selection(parse("change", None)).keeps(CHANGE) is None
