"""The functions that are built in."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tidings.pipelines import Message, omit, opfilter, pick, pretty, remap, rename, skip
from tidings.pipelines.messages import WrongPipeline
from tidings.pipelines.pipeline import Step, name_of


def message(**data: Any) -> Message:
    found = {"type": "video", "id": "x32", **data}
    return Message("insert", "video", "2026-01-01T00:00:00Z", found, "0" * 24)


def after(step: Step, **data: Any) -> dict[str, Any] | None:
    found = step(message(**data))
    return found.data if found else None


NAMED = {"type": "video", "id": "x32"}


@pytest.mark.parametrize(
    ("step", "data", "left"),
    [
        pytest.param(
            omit("secret", "data.inner", "data.no.such"),
            {"secret": 1, "data": {"inner": 2, "no": 3}},
            {"data": {"no": 3}},
            id="omit: by path; what is not there is left out already",
        ),
        pytest.param(
            pick("data.title", "nothing"),
            {"data": {"title": "a", "b": 1}, "c": 2},
            {"data": {"title": "a"}},
            id="pick: and what names the object stays",
        ),
        pytest.param(
            rename({"old": "new", "data.a": "more.b", "none": "x"}),
            {"old": 1, "data": {"a": 2}},
            {"new": 1, "data": {}, "more": {"b": 2}},
            id="rename: also into an object that is not there yet",
        ),
    ],
)
def test_fields(step: Step, data: dict[str, Any], left: dict[str, Any]) -> None:
    """What becomes of the fields of an object."""
    assert after(step, **data) == {**NAMED, **left}


def test_remap() -> None:
    """Namespaces that are not named stay."""
    step = remap({"video": "films"})
    assert getattr(step(message()), "namespace", "") == "films"
    assert getattr(remap({"a": "b"})(message()), "namespace", "") == "video"


@pytest.mark.parametrize(
    ("comparison", "match", "kept"),
    [
        ("==", 5, [5, 5.0]),
        ("eq", "5", ["5"]),
        ("$eq", True, [True]),
        ("=~", "^5", ["5"]),
        (">", 4, [5, 5.0]),
        ("gte", 5.0, [5, 5.0]),
        ("<", 6, [5, 5.0]),
        ("$lte", "6", ["5"]),
    ],
)
def test_skip_keeps_what_compares(comparison: str, match: Any, kept: list[Any]) -> None:
    """Whole numbers equal floats; a value of another kind, or a missing one, does not match."""
    values = [5, 5.0, "5", True, None, [5], {"a": 5}]
    step = skip("data.n", comparison, match)
    found = [value for value in values if after(step, data={"n": value}) is not None]
    assert [(type(each), each) for each in found] == [(type(each), each) for each in kept]
    assert after(step) is None


def test_opfilter() -> None:
    """The list names the operations to keep, or those to drop."""
    assert opfilter(whitelist=("insert",))(message()) is not None
    assert opfilter(blacklist=("insert",))(message()) is None


def test_pretty(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged and passed on."""
    with caplog.at_level(logging.INFO, "tidings.pipelines"):
        assert after(pretty(4), a=1) == {**NAMED, "a": 1}
    assert '    "a": 1' in caplog.text


def test_T39_what_no_function_knows_is_refused() -> None:
    """The error has the value and the allowed ones."""
    with pytest.raises(WrongPipeline, match="'~=' is not a comparison; the comparisons are =="):
        skip("id", "~=", 1)
    with pytest.raises(WrongPipeline, match="not a regular expression"):
        skip("id", "=~", "(")
    with pytest.raises(WrongPipeline, match="not both"):
        opfilter()
    with pytest.raises(WrongPipeline, match="'noop' is unknown"):
        opfilter(blacklist=("noop",))
    with pytest.raises(WrongPipeline, match="not the name of a field"):
        omit("a..b")


def test_a_step_has_a_name() -> None:
    """The tree shows this name."""

    def mine(message: Message) -> Message:
        return message

    assert name_of(omit("a", "b")) == "omit(a, b)"
    assert name_of(skip("id", "==", "x")) == "skip(id, ==, 'x')"
    assert name_of(mine) == "mine"
