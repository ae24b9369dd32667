"""Errors: what clients see of them.

Whole numbers of requests: digits, measured before they are read.
"""

from __future__ import annotations

import json

import pytest

from tidings.core import errors
from tidings.core.errors import InvalidChange, Rejected, TidingsError, parse_field, parse_integer
from tidings.http.answers import refusal, unavailable_body
from tidings.http.openapi import document


def kinds(base: type[TidingsError]) -> list[type[TidingsError]]:
    """Return every error below *base* that the core defines."""
    below = [kind for child in base.__subclasses__() for kind in (child, *kinds(child))]
    return [kind for kind in below if kind.__module__ == errors.__name__]


def test_every_error_has_one_base() -> None:
    """The edge can therefore catch all of them."""
    defined = {
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert defined == {TidingsError, *kinds(TidingsError)}


def test_every_error_says_what_it_means() -> None:
    """In a docstring of its own, not in that of its base."""
    assert [kind for kind in kinds(TidingsError) if not kind.__dict__.get("__doc__")] == []


def test_codes_are_unique_and_statuses_are_the_clients_fault() -> None:
    """A client distinguishes errors by their code."""
    rejections = [kind for kind in kinds(TidingsError) if issubclass(kind, Rejected)]
    codes = [kind.code for kind in rejections]

    assert len(set(codes)) == len(codes)
    assert all(400 <= kind.status < 500 for kind in rejections)


def test_the_body_says_field_value_and_rule() -> None:
    """The message has both in one sentence."""
    error = errors.InvalidOperation("must be a string", field="ops[3].id", value=7)

    assert error.body() == {
        "code": "invalid_operation",
        "message": "ops[3].id: must be a string",
        "field": "ops[3].id",
        "value": "7",
        "rule": "must be a string",
    }
    assert str(errors.InvalidOperation("is wrong")) == "is wrong"


def test_an_error_without_a_value_has_an_empty_value() -> None:
    """No client shows `None`: the value is missing, or is null in the request."""
    found = [
        errors.InvalidOperation("is wrong").body(),
        errors.InvalidOperation("must be a string", field="id", value=None).body(),
        unavailable_body("is full", "queue"),
        json.loads(refusal(errors.Unavailable("")).body)["error"],
        *(each["value"]["error"] for each in document(["main"])["components"]["examples"].values()),
    ]
    assert {each["value"] for each in found} == {""}


@pytest.mark.parametrize(
    "value",
    ["x" * 1_000_000, ["\ud800"] * 1000, "\0", b"\xff", float("inf"), 10**4000, [10**5000], None],
)
def test_a_body_is_small_and_can_be_sent(value: object) -> None:
    """This holds for any value that a client sent."""
    body = json.dumps(Rejected("is wrong", field="f", value=value).body()).encode()

    assert len(body) < 2000


def test_faults_of_ours_say_where() -> None:
    """The text helps a reader of a function's log."""
    lost = errors.LeaseLost(feed="main", follower="push", fence=7)
    fell = errors.FellOff(feed="main", follower="push", checkpoint=3, floor=9)

    assert str(lost) == "main/push: lease 7 was taken over"
    assert str(fell) == "main/push: is at page 3, but the log begins with page 9"
    assert not isinstance(lost, Rejected) and not isinstance(fell, Rejected)


@pytest.mark.parametrize("text", ["", "-1", "+1", "1 ", "1_0", "\u0661", "0x1", "1e3", str(2**64)])
def test_a_whole_number_is_digits(text: str) -> None:
    """The accepted texts are those of changeagent's parser."""
    with pytest.raises(ValueError, match="must be a whole number from 0 to 18446744073709551615"):
        parse_integer(text, 0, 2**64 - 1)


def test_within_its_bounds() -> None:
    """Both of them are in."""
    assert parse_integer(str(2**64 - 1), 0, 2**64 - 1) == 2**64 - 1
    assert (parse_integer("007", 1, 999), parse_integer("7", 7, 7)) == (7, 7)
    for text in ("0", "8"):
        with pytest.raises(ValueError, match="from 1 to 7"):
            parse_integer(text, 1, 7)


def test_more_digits_than_python_reads_are_an_ordinary_mistake() -> None:
    """The error names field, value and rule, and is short."""
    with pytest.raises(InvalidChange) as refused:
        parse_field("9" * 5000, "since", 0, 10, InvalidChange)
    body = refused.value.body()
    assert (body["field"], body["rule"]) == ("since", "must be a whole number from 0 to 10")
    assert len(str(body)) < 400
