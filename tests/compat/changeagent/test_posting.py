"""Posts of a client, lists of changes, and webhooks."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.compat.changeagent.client import Changes, Parallel
from tests.compat.oplog.feed import ask
from tests.contract.answering import Answer, Answering, ReceivedRequest, answering
from tidings.core.changeagent.webhooks import Hook, Verdict
from tidings.http.asgi import BODY_BYTES_MAX
from tidings.http.outbound.webhooks import Webhooks


def test_A01_a_change_is_answered_with_its_id(changes: Changes) -> None:
    """200, JSON, and the id alone."""
    answer = changes.send(b'{"data":{"Hello":"world"}}')

    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    found = json.loads(answer.body)
    assert list(found) == ["_id"] and 0 < found["_id"] < 2**53


@pytest.mark.parametrize(
    "value",
    [{"a": 1}, [1, "x"], "text", 12, 1.5, True, None, {"tags": ["a"]}, {}, "\u2028"],
    ids=lambda value: json.dumps(value),
)
def test_A02_any_json_value_is_data(changes: Changes, value: Any) -> None:
    """The whole body if it has no field `data`; tags next to no `data` are data too."""
    assert changes.send(json.dumps(value).encode()).status == 200

    [change] = changes.get()["changes"]
    assert change["data"] == value and "tags" not in change


def test_A03_a_clients_id_and_time_are_ignored(changes: Changes) -> None:
    """They are ours to give."""
    changes.send(b'{"_id":7,"_ts":8,"data":"x","tags":["t"]}')
    changes.send(b'{"_id":7}')

    first, second = changes.get()["changes"]
    assert first["_id"] != 7 and first["_ts"] != 8
    assert (first["data"], first["tags"], second["data"]) == ("x", ["t"], None)


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json; charset=utf-8", 200),
        ("application/json", 200),
        ("application/x-ndjson", 415),
        ("text/plain", 415),
        ("", 415),
    ],
)
def test_A04_only_json_is_read(changes: Changes, kind: str, status: int) -> None:
    """Whatever parameters it has; else 415 in changeagent's words."""
    answer = changes.send(b"1", content_type=kind)

    assert answer.status == status
    if status == 415:
        assert answer.body == b'{"error":"Unsupported content type"}'


@pytest.mark.parametrize("body", [b"{", b"nope", b"NaN", b'{"data":}', b" "])
def test_A05_what_is_no_json_is_refused(changes: Changes, body: bytes) -> None:
    """400 in changeagent's words, and nothing is written."""
    answer = changes.send(body)

    assert (answer.status, answer.body) == (400, b'{"error":"Invalid JSON"}')
    assert changes.get()["changes"] == []


def test_A06_what_was_answered_can_be_read(changes: Changes) -> None:
    """At once, after the id before it, by each of many writers at the same time."""

    def write(number: int) -> bool:
        found = changes.post(number)
        [change, *_] = changes.get(("since", found - 1))["changes"]
        return bool(change["_id"] == found and change["data"] == number)

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(write, range(40)))


def test_A07_A08_ids_ascend_over_all_writers_and_none_comes_late(changes: Changes) -> None:
    """While many write, a reader that keeps its place misses none and sees none twice."""
    seen: list[int] = []

    def read(wanted: int) -> None:
        at = 0
        while len(seen) < wanted:
            for change in changes.get(("since", at), ("block", 5))["changes"]:
                at = change["_id"]
                seen.append(at)

    with ThreadPoolExecutor(9) as threads:
        reading = threads.submit(read, 80)
        written = list(threads.map(changes.post, range(80)))
        reading.result(60)

    assert seen == sorted(written) == sorted(set(written))


def test_A05_a_body_that_is_too_large_is_refused_in_changeagents_form(changes: Changes) -> None:
    """The server refuses it before an endpoint sees it."""
    answer = changes.send(b'"' + b"x" * BODY_BYTES_MAX + b'"')

    assert answer.status == 413
    assert list(json.loads(answer.body)) == ["error"] and b'"error":"' in answer.body


def test_a_slash_at_the_end_is_redirected(changes: Changes) -> None:
    """With the prefix and the query; a POST stays a POST."""
    for method, status in (("GET", 301), ("POST", 308)):
        answer = ask(changes.port, method, f"/foo{changes.path}/?since=1&tag=a%2Cb&tag=c")

        assert answer.status == status
        assert answer.headers["location"] == f"/foo{changes.path}?since=1&tag=a%2Cb&tag=c"
    assert ask(changes.port, "GET", "/nothing/").status == 404


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


ROUND_S = 60.0  # that two hooks wait for each other; one after the other they never meet


def configure(changes: Changes, *hooks: dict[str, Any]) -> None:
    body = json.dumps({"webHooks": list(hooks)}).encode()  # JSON is YAML
    path = f"/feeds/{changes.feed}/config"
    answer = ask(changes.port, "PUT", path, {"content-type": "text/yaml"}, body)
    assert answer.status == 200, answer


def test_A29_a_hook_is_sent_the_data_and_its_headers(changes: Changes) -> None:
    """Exactly the data, as JSON, and the additions of the configuration."""
    with answering(Answer(204)) as hook:
        configure(changes, {"uri": f"{hook.url}/check?a=1", "headers": {"foo": "bar"}})
        changes.post({"Hello": "world"}, "t")

    [asked] = hook.asked
    assert (asked.method, asked.path, asked.body) == (
        "POST",
        "/check?a=1",
        b'{"Hello": "world"}',  # as it was spelled
    )
    headers = {name.lower(): value for name, value in asked.headers.items()}
    assert (headers["content-type"], headers["foo"]) == ("application/json", "bar")
    assert len(changes.ids()) == 1


def test_A29_a_hook_counts_from_the_next_change(changes: Changes) -> None:
    """Without a delay: added, it is asked about the next change; removed, about none."""
    changes.post(1)
    with answering(Answer(400)) as hook:
        configure(changes, {"uri": hook.url})
        assert changes.send(b'{"data":2}').status == 400
        configure(changes)
        changes.post(3)

    assert [asked.body for asked in hook.asked] == [b"2"]
    assert [change["data"] for change in changes.get()["changes"]] == [1, 3]


def test_A30_A31_every_failure_is_told_and_nothing_is_stored(changes: Changes) -> None:
    """By its number, in the order of the configuration; the hooks that accept are not named."""
    with answering(Answer(400)) as no, answering(Answer(200)) as yes, answering(Answer(503)) as ill:
        nobody = {"uri": "http://127.0.0.1:1/"}
        configure(changes, *({"uri": each.url} for each in (no, yes, ill)), nobody)
        answer = changes.send(b'{"data":1}')

    error = json.loads(answer.body)["error"]
    assert answer.status == 502
    assert error == (
        "Error 0: WebHook returned status 400\n"
        "Error 2: WebHook returned status 503\n"
        "Error 3: WebHook could not be called: ConnectionRefusedError\n"
    )
    assert [len(each.asked) for each in (no, yes, ill)] == [1, 1, 1]
    assert changes.ids() == []


def test_A30_a_plain_refusal_is_the_clients_fault(changes: Changes) -> None:
    """400 where each hook that failed looked at the change and said no."""
    with answering(Answer(422)) as hook:
        configure(changes, {"uri": hook.url})
        answer = changes.send(b'{"data":1}')

    assert answer.status == 400
    assert json.loads(answer.body) == {"error": "Error 0: WebHook returned status 422\n"}
    assert changes.ids() == []


class Meeting(Answering):
    """A server that answers only after two requests have arrived."""

    def __init__(self) -> None:
        super().__init__(Answer(200))
        self._both = threading.Barrier(2)

    def next_answer(self, asked: ReceivedRequest) -> Answer:
        self._both.wait(ROUND_S)
        return super().next_answer(asked)


def test_A31_hooks_are_asked_at_once() -> None:
    """Each is answered only when both have been asked."""
    with Meeting() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        found = Webhooks(private=True)([Hook(server.url), Hook(server.url)], "1")
        server.shutdown()

    assert [verdict.status for verdict in found] == [200, 200]


def test_A30_a_hook_that_says_nothing_is_given_up() -> None:
    """After a time that is bounded for all of them together."""
    with answering(Answer(200)) as server, server.lock:  # it answers no request in the meantime
        started = time.monotonic()
        found = Webhooks(private=True, timeout_s=0.3)([Hook(server.url)] * 3, "1")
        assert time.monotonic() - started < 60

    assert all("did not answer" in str(verdict) for verdict in found)


@pytest.mark.parametrize(
    "uri",
    [
        "http://127.0.0.1:1/",
        "http://localhost:1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://10.0.0.1/",
        "http://[::1]:1/",
        "http://[::ffff:127.0.0.1]:1/",
        "http://0.0.0.0:1/",
    ],
)
def test_private_addresses_are_not_called(uri: str) -> None:
    """Unless the deployment allows it: a hook's answer would reveal internal services."""
    [verdict] = Webhooks(private=False)([Hook(uri)], "1")

    assert verdict == Verdict(failure="WebHook is at an address that may not be called")


def test_metadata_is_never_called() -> None:
    """Not even where private addresses are."""
    [verdict] = Webhooks(private=True)([Hook("http://169.254.169.254/latest")], "1")

    assert "may not be called" in verdict.failure


def test_a_redirect_is_no_acceptance() -> None:
    """It is not followed: it could lead anywhere."""
    with answering(Answer(302)) as hook:
        [verdict] = Webhooks(private=True)([Hook(hook.url)], "1")

    assert not verdict.accepts and str(verdict) == "WebHook returned status 302"
