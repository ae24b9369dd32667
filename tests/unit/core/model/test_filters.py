"""Filters: OR inside types and inside parents, AND between them."""

from __future__ import annotations

from urllib.parse import parse_qs, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.scene import line
from tidings.core import limits
from tidings.core.errors import InvalidFilter
from tidings.core.model import filters
from tidings.core.model.filters import ALL_KEY, EVERYTHING, Filter
from tidings.core.model.operations import Operation, parse_line

VIDEO = Operation("update", "video", "x1", ("user/u1", "channel/c1"))
WORDS = st.sampled_from(["a", "b", "c", "A"])
SETS = st.none() | st.frozensets(WORDS, max_size=3)
IDS = st.text("ab*", min_size=1, max_size=4)
FILTERS = st.builds(Filter, SETS, SETS)
NAMES = st.text(st.sampled_from('a"\\/ \u00e9\u2028\x85\n'), min_size=1, max_size=2)
OPERATIONS = st.builds(
    Operation, st.just("update"), WORDS, st.just("x"), st.lists(WORDS, max_size=3).map(tuple)
)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (None, None),
        ("", None),
        (",", frozenset()),
        (",,", frozenset()),
        ("a,", frozenset({"a"})),
        ("a,a", frozenset({"a"})),
        (" a, b", frozenset({" a", " b"})),
    ],
)
def test_O57_empty_is_no_filter_and_a_comma_matches_nothing(
    text: str | None, kept: frozenset[str] | None
) -> None:
    """This is oplog's rule; blanks are part of a value."""
    wanted = filters.parse(text, None)

    assert wanted.types == kept
    assert wanted.is_everything is (kept is None)
    if kept == frozenset():
        assert not wanted.matches(VIDEO) and wanted.keys() == []


@pytest.mark.parametrize(
    ("ids", "matches"),
    [
        ("x1", True),
        ("x*", True),
        ("*", True),
        ("a,x*", True),
        ("x", False),
        ("X*", False),
        (",", False),
    ],
)
def test_ids_are_exact_or_begin_so(ids: str, matches: bool) -> None:
    """A star at the end matches any suffix; elsewhere it is a literal character."""
    wanted = filters.from_query({"types": "video", "ids": ids})
    assert wanted.matches(VIDEO) is matches
    assert wanted.may_match(line("x1", type="video")) or not matches
    assert not filters.from_query({"types": "user", "ids": ids}).matches(VIDEO)
    assert filters.of(wanted.values()) == wanted


@given(st.frozensets(IDS, max_size=12), IDS)
def test_7_2_an_id_is_in_the_list_or_has_one_of_its_beginnings(
    ids: frozenset[str], id_: str
) -> None:
    """Also if a beginning is the beginning of others."""
    wanted = any(id_ == each or (each[-1] == "*" and id_.startswith(each[:-1])) for each in ids)
    assert Filter(ids=ids).matches(Operation("update", "video", id_, ())) == wanted


def test_an_object_with_another_id_does_not_leave() -> None:
    """An id never changes."""
    wanted = filters.from_query({"parents": "p", "ids": "y*", "leave": "true"})
    assert not wanted.left_by(VIDEO, ["p"])


@given(FILTERS, OPERATIONS)
def test_matching_is_the_definition(wanted: Filter, operation: Operation) -> None:
    """Against the rule as it is written in the protocol."""
    by_type = wanted.types is None or operation.type in wanted.types
    by_parent = wanted.parents is None or wanted.parents & set(operation.parents)
    assert wanted.matches(operation) == bool(by_type and by_parent)


@given(FILTERS, OPERATIONS)
def test_a_filter_that_matches_is_found_by_its_keys(wanted: Filter, operation: Operation) -> None:
    """Otherwise a push would miss a subscriber."""
    if wanted.matches(operation):
        assert set(wanted.keys()) & set(filters.keys_of(operation))


@given(FILTERS)
def test_a_filter_is_filed_under_what_it_names(wanted: Filter) -> None:
    """The keys are its parents, else its types, else `ALL_KEY`; sorted and without repeats."""
    keys = wanted.keys()

    assert keys == sorted(set(keys))
    if wanted.parents is not None:
        assert len(keys) == len(wanted.parents)
    elif wanted.types is not None:
        assert len(keys) == len(wanted.types)
    else:
        assert keys == [ALL_KEY]


def test_keys_of_a_type_and_a_parent_differ() -> None:
    """A parent with a type's name does not match a subscription to the type; neither does `*`."""
    assert filters.type_key("a") != filters.parent_key("a")
    assert ALL_KEY not in (filters.type_key("*"), filters.parent_key("*"))
    assert EVERYTHING.keys() == [ALL_KEY]


def test_how_many_values() -> None:
    """Different ones; each is an item of the index."""
    most = ",".join(f"t{number}" for number in range(limits.FILTER_VALUES_MAX))

    assert len(filters.parse(most + "," + most, None).keys()) == limits.FILTER_VALUES_MAX
    with pytest.raises(InvalidFilter, match="types: holds at most 100 values, got 101"):
        filters.parse(most + ",more", None)


@pytest.mark.parametrize("value", ["\0", "a\0b", "\ud800", "x" * 641, "\u00e9" * 321])
def test_values_that_cannot_be_stored(value: str) -> None:
    """They could never match: no operation holds them."""
    with pytest.raises(InvalidFilter, match="parents: must be at most 640 bytes and must not"):
        filters.parse(None, value)
    with pytest.raises(InvalidFilter, match="types: must be"):
        filters.validate_values(["video", value], "types")


@given(st.none() | st.text(), st.none() | st.text())
def test_any_text_is_a_filter_or_invalid(types: str | None, parents: str | None) -> None:
    """Nothing but `InvalidFilter` comes out, and every key can be stored."""
    try:
        keys = filters.parse(types, parents).keys()
    except InvalidFilter:
        return
    assert all(len(key.encode()) <= 1024 for key in keys)


@given(
    st.lists(NAMES, max_size=3, unique=True),
    st.lists(NAMES, max_size=3, unique=True),
    NAMES,
    st.lists(NAMES, max_size=3),
)
def test_O58_what_matches_may_match(
    types: list[str], parents: list[str], type_: str, objects: list[str]
) -> None:
    """The quick check accepts every operation that the filter matches, however encoded."""
    wanted = Filter(frozenset(types) if types else None, frozenset(parents) if parents else None)
    kept = line("x", type=type_, parents=objects)

    if wanted.matches(parse_line(kept)):
        assert wanted.may_match(kept)
        assert wanted.may_match(f"{line('y')}\n{kept}\n{line('z')}")


def test_a_quick_look_spares_the_parsing() -> None:
    """The text is not parsed if it has none of the values, unless they are many or may be
    escaped."""
    plain = line("x", type="video", parents=["user/ann"])

    assert not filters.parse("user", None).may_match(plain)
    assert not filters.parse("video", "user/bob,user/an").may_match(plain)
    assert filters.parse("user,video", "user/bob,user/ann").may_match(plain)
    assert not filters.parse(",", None).may_match(plain)
    assert filters.parse(",".join("abcdefghi"), None).may_match(plain)
    assert filters.parse('a"b', None).may_match(plain)
    assert filters.parse("\u00e9", None).may_match(plain)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a,b", {"a", "b"}),
        (" a ,b", {" a ", "b"}),
        ('["a,b"]', {"a,b"}),
        ('["a,b","c"]', {"a,b", "c"}),
        ('["[\\"a\\"]"]', {'["a"]'}),
        ("[a,b]", {"[a", "b]"}),
        (",", set()),
        ('[""]', set()),
    ],
)
def test_7_2_lists_as_text(text: str, values: set[str]) -> None:
    """P7.2: comma-separated, or JSON, which alone can name a comma."""
    assert filters.from_query({"parents": text}).parents == frozenset(values)


@pytest.mark.parametrize("text", ['["a', '["a",1]', '["a"]x', '["a"' + ",[" * 100_000])
def test_7_2_a_list_that_begins_like_json_has_to_be_json(text: str) -> None:
    """Otherwise it would match something that its client did not mean."""
    with pytest.raises(InvalidFilter) as refused:
        filters.from_query({"ids": text})
    assert refused.value.field == "ids"


HOSTILE = [
    "p/a,p/b",
    "a&b=c",
    "50%25",
    "a+b",
    "é\u2028😀",
    " a ",
    "*",
    '["x"]',
    '"',
    "\\,",
    "a\nb",
    "x*",
]


@pytest.mark.parametrize("values", [*([each] for each in HOSTILE), HOSTILE, ["a", "b"], [], [""]])
def test_7_2_clients_write_what_a_feed_reads(values: list[str]) -> None:
    """Any value survives the way through a URL; empty values match nothing."""
    query = parse_qs(urlencode({"parents": filters.as_text(values)}), keep_blank_values=True)

    assert filters.from_query({"parents": query["parents"][0]}).parents == frozenset(values) - {""}
