"""The parameters of a list, and the changes that it returns."""

from __future__ import annotations

import json
import time

import pytest

from tests.compat.changeagent.client import Changes, Parallel


@pytest.fixture
def some(changes: Changes) -> list[int]:
    """Five changes."""
    return [changes.post({"seq": number}) for number in range(5)]


def test_A09_since_is_behind(changes: Changes, some: list[int]) -> None:
    """The change itself is not returned again."""
    assert changes.ids(("since", some[1])) == some[2:]
    assert changes.ids(("since", some[-1])) == []
    assert changes.ids(("since", 2**63)) == []


def test_A10_the_limit_is_the_limit(changes: Changes) -> None:
    """100 by default; never one more, also after an id without a change."""
    body = [{"event": "insert", "type": "v", "id": str(at)} for at in range(103)]
    changes.operations(*body)
    first = changes.ids()

    assert len(first) == 100
    assert len(changes.ids(("since", first[0] - 1))) == 100
    assert len(changes.ids(("since", first[0]), ("limit", 7))) == 7
    assert changes.ids(("limit", 0)) == []
    assert changes.get(("limit", 4_294_967_295))["atEnd"]


@pytest.mark.parametrize("name", ["since", "limit", "block"])
@pytest.mark.parametrize("value", ["-1", "x", "1.5", "99999999999999999999", "+1", "%D9%A1"])
def test_A11_A12_A13_numbers_are_whole_and_in_range(shared: Changes, name: str, value: str) -> None:
    """400 in changeagent's words."""
    answer = shared.ask((name, value))

    assert (answer.status, answer.body) == (400, f'{{"error":"Invalid {name}"}}'.encode())


def test_A14_nothing_is_an_empty_list(changes: Changes) -> None:
    """And not null."""
    assert b'"changes":[]' in changes.ask().body


def test_A15_no_tags_are_left_out_and_times_are_nanoseconds(changes: Changes) -> None:
    """The time is now, in whole numbers."""
    changes.post("x")
    [change] = changes.get()["changes"]

    assert list(change) == ["_id", "_ts", "data"]
    assert isinstance(change["_ts"], int)
    assert abs(change["_ts"] - time.time_ns()) < 60_000_000_000


def test_A16_everything_is_from_the_start_to_the_end(changes: Changes, some: list[int]) -> None:
    """Also of a feed in which nothing is."""
    found = changes.get()

    assert (found["atStart"], found["atEnd"]) == (True, True)
    assert (found["floor"], found["head"]) == (0, some[-1])


def test_A17_the_first_of_many_is_not_at_the_end(changes: Changes, some: list[int]) -> None:
    """There is more to ask for."""
    found = changes.get(("limit", 1))

    assert (found["atStart"], found["atEnd"]) == (True, False)
    assert found["head"] == some[-1]


def test_A18_behind_the_first_is_not_at_the_start(changes: Changes, some: list[int]) -> None:
    """But at the end where nothing follows."""
    found = changes.get(("since", some[0]))

    assert (found["atStart"], found["atEnd"]) == (False, True)


def test_A19_tags_are_ored_and_none_means_all(changes: Changes) -> None:
    """Exact, whatever letters they have."""
    numbers = [
        changes.post(1, "a"),
        changes.post(2, "b", "x y"),
        changes.post(3, 'c"\\\u00e9'),
        changes.post(4),
    ]

    assert changes.ids(("tag", "a"), ("tag", "b")) == numbers[:2]
    assert changes.ids(("tag", "x y")) == [numbers[1]]
    assert changes.ids(("tag", 'c"\\\u00e9')) == [numbers[2]]
    assert changes.ids(("tag", "A")) == changes.ids(("tag", "")) == []
    assert changes.ids() == numbers


def test_A20_a_blocked_reader_is_answered_when_a_change_comes(
    changes: Changes, some: list[int]
) -> None:
    """Long before its time is over."""
    waiting = Parallel(lambda: changes.get(("since", some[-1]), ("block", 120)))
    time.sleep(0.5)
    assert waiting.running
    number = changes.post("news")
    started = time.monotonic()
    found = waiting.result()

    assert time.monotonic() - started < 60
    assert [change["_id"] for change in found["changes"]] == [number]
    assert (found["atStart"], found["atEnd"]) == (False, True)


def test_A21_other_tags_do_not_wake_a_blocked_reader(changes: Changes, some: list[int]) -> None:
    """It continues to wait after them, and receives its own."""
    asked = ("since", some[-1]), ("block", 20), ("tag", "mine")
    waiting = Parallel(lambda: changes.get(*asked))
    time.sleep(0.3)
    changes.post("other", "yours")
    time.sleep(0.7)
    assert waiting.running
    number = changes.post("own", "mine")

    assert [change["_id"] for change in waiting.result()["changes"]] == [number]


def test_A22_a_blocked_reader_is_told_that_nothing_came(changes: Changes, some: list[int]) -> None:
    """After its time, at the end and not at the start."""
    started = time.monotonic()
    found = changes.get(("since", some[-1]), ("block", 1))

    assert time.monotonic() - started >= 0.9
    assert found["changes"] == []
    assert (found["atStart"], found["atEnd"]) == (False, True)


def test_A22_waiting_beyond_the_end_does_no_harm(changes: Changes, some: list[int]) -> None:
    """A reader that waits for a future id receives no other change and delays no other reader."""
    asked = ("since", some[-1]), ("block", 20)
    beyond = Parallel(lambda: changes.get(("since", 2**52), ("block", 3)))
    time.sleep(0.3)
    waiting = Parallel(lambda: changes.get(*asked))
    time.sleep(0.5)
    number = changes.post("news")

    assert [change["_id"] for change in waiting.result()["changes"]] == [number]
    assert beyond.result()["changes"] == []


def test_A23_one_change_by_its_id(changes: Changes, some: list[int]) -> None:
    """The same change as in a list; 400 for an invalid id, 404 for an unknown one."""
    listed = changes.get()["changes"][2]
    found, unknown, invalid = changes.one(some[2]), changes.one(some[-1] + 1), changes.one("x")

    assert (found.status, json.loads(found.body)) == (200, listed)
    assert (unknown.status, unknown.body) == (404, b'{"error":"Not found"}')
    assert (invalid.status, invalid.body) == (400, b'{"error":"Invalid ID"}')
    assert changes.one(2**70).status == 400
