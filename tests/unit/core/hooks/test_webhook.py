"""Webhooks: how they are signed, and how operators configure them.

Delivery: every event arrives, in the order of each object, even if endpoints fail.
"""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook as Receiver
from standardwebhooks.webhooks import WebhookVerificationError

from tests.unit.core.consumers.consumer_scene import WHY
from tests.unit.core.hooks.hook_scene import BROKEN, GONE, NAME, OK, URL, HookScene, Killed, hooked
from tests.unit.core.scene import FEED, op
from tidings.core import limits
from tidings.core.changeagent.webhooks import Outgoing, Verdict
from tidings.core.erasure.entries import Entry, encode_entry
from tidings.core.errors import InvalidConsumer, Unavailable
from tidings.core.hooks.attempts import AttemptLog
from tidings.core.hooks.webhook import (
    InvalidWebhook,
    Secret,
    UnknownWebhook,
    Webhook,
    WebhookExists,
    may_be_called,
    secret_of,
)
from tidings.core.model import filters
from tidings.core.settings.profiles import Profile

OLD, NEW = (secret_of(bytes([at]) * 32) for at in (1, 2))
BODY = '{"data":"\u00fc\u2028"}'


@pytest.fixture
def now_ms() -> int:
    """Return the current time: the library compares it with its clock, and refuses requests that
    are five minutes old.
    """
    return int(time.time() * 1000)


def test_the_library_of_standard_webhooks_verifies_what_is_sent(now_ms: int) -> None:
    """The body as it is, the id and the time; not another of either."""
    headers = Webhook("h", URL, (Secret(NEW),)).headers("some-id", BODY, now_ms)

    assert Receiver(NEW).verify(BODY, headers) == {"data": "\u00fc\u2028"}
    for other in (
        {**headers, "webhook-id": "another"},
        {**headers, "webhook-timestamp": str(now_ms // 1000 - 1)},
    ):
        with pytest.raises(WebhookVerificationError):
            Receiver(NEW).verify(BODY, other)
    with pytest.raises(WebhookVerificationError):
        Receiver(OLD).verify(BODY, headers)
    with pytest.raises(WebhookVerificationError):
        Receiver(NEW).verify(BODY + " ", headers)


def test_a_replaced_secret_signs_beside_the_new_one_for_a_while(now_ms: int) -> None:
    """Its owner can then change it without a moment in which requests fail the verification."""
    hook = Webhook("h", URL, (Secret(OLD),)).rotate(NEW, now_ms)
    headers = hook.headers("some-id", BODY, now_ms)
    assert Receiver(OLD).verify(BODY, headers) and Receiver(NEW).verify(BODY, headers)

    later = now_ms + limits.WEBHOOK_ROTATION_MS
    assert hook.signing(later - 1) == [NEW, OLD] and hook.signing(later) == [NEW]
    assert hook.rotate(NEW, later) == hook, "a repeated rotation"
    third = secret_of(b"3" * 32)
    assert hook.rotate(third, now_ms).signing(now_ms) == [third, NEW], "two at most"


def test_secrets_are_shown_by_nobody() -> None:
    """They are in no log line that shows the webhook, and in no error."""
    hook = Webhook("h", URL, (Secret(NEW),))
    assert "whsec" not in repr(hook) and NEW[6:] not in repr(hook)
    with pytest.raises(InvalidWebhook) as refused:
        HookScene().make(secret="whsec_c2hvcnQ=")
    assert "c2hvcnQ" not in str(refused.value.body())


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"url": None}, "url"),
        ({"url": "ftp://a.example/"}, "url"),
        ({"url": "https://user:abracadabra@a.example/"}, "url"),
        ({"url": "https://a.example/ b"}, "url"),
        ({"url": "https://a.example/" + "x" * 1024}, "url"),
        ({"url": "https://a.example:0/"}, "url"),
        ({"url": 7}, "url"),
        ({"url": "ftp://a.example/?token=abracadabra"}, "url"),
        ({"url": "https://a.example/?token=abracadabra" + "x" * 1024}, "url"),
        ({"format": "avro"}, "format"),
        ({"format": []}, "format"),
        ({"attempts": 0}, "attempts"),
        ({"attempts": 11}, "attempts"),
        ({"attempts": True}, "attempts"),
        ({"secret": "a secret"}, "secret"),
        ({"secret": "whsec_!!!!"}, "secret"),
        ({"secret": "whsec_" + b64encode(b"x" * 23).decode()}, "secret"),
        ({"secret": "whsec_" + b64encode(b"x" * 65).decode()}, "secret"),
        ({"from": "copy"}, "from"),
    ],
)
def test_what_breaks_a_rule_changes_nothing(given: dict[str, Any], field: str) -> None:
    """The error names the field; neither a webhook nor a consumer is created."""
    scene = HookScene()
    with pytest.raises(InvalidWebhook) as refused:
        scene.make(**given)

    assert refused.value.field == field
    assert "abracadabra" not in str(refused.value.body())
    assert not scene.registry.all(FEED) and not scene.store.consumers(FEED)


def test_what_no_consumer_may_be_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A place, a name, one too many."""
    scene = HookScene()
    with pytest.raises(InvalidConsumer):
        scene.make(**{"from": "ffffffffffffffffff000000"})
    with pytest.raises(InvalidConsumer):
        scene.admin.put(FEED, "No!", {"url": URL}, filters.EVERYTHING)
    monkeypatch.setattr(limits, "CONSUMERS_MAX", 0)
    with pytest.raises(InvalidConsumer, match="at most 0"):
        scene.make()
    assert not scene.registry.all(FEED)


def test_a_webhook_that_is_there_keeps_its_place_and_its_secret() -> None:
    """Its other settings change; its secret is returned only once."""
    scene = HookScene()
    asked = {"url": URL, "from": "oldest"}
    made, secret = scene.admin.put(FEED, NAME, asked, filters.EVERYTHING)
    assert secret == made.secrets[0].text
    scene.post("a")
    scene.run_on()
    place = scene.consumer(NAME).position
    other = {"url": "https://b.example/", "attempts": 3, "secret": NEW}
    changed, told = scene.admin.put(FEED, NAME, other, filters.of({"types": ["a"]}))

    assert (changed.url, changed.attempts, told) == ("https://b.example/", 3, "")
    assert changed.secrets == made.secrets and changed == scene.registry.webhook(FEED, NAME)
    assert scene.consumer(NAME).position == place
    assert scene.consumer(NAME).filter.types == frozenset({"a"})


def test_a_webhook_that_exists_is_not_changed_by_a_request_for_a_new_one() -> None:
    """The request is refused; a free name is accepted."""
    scene = HookScene()
    made, _ = scene.admin.put(FEED, NAME, {"url": URL}, filters.EVERYTHING, only_new=True)
    with pytest.raises(WebhookExists):
        other = {"url": "https://b.example/"}
        scene.admin.put(FEED, NAME, other, filters.of({"types": ["a"]}), only_new=True)

    assert scene.registry.webhook(FEED, NAME) == made
    assert scene.consumer(NAME).filter == filters.EVERYTHING


@pytest.mark.parametrize(
    ("url", "is_called", "is_called_if_private"),
    [
        ("https://a.example/x", True, True),
        ("https://8.8.8.8/x", True, True),
        ("http://127.0.0.1:9/x", False, True),
        ("http://LOCALHOST:9/x", False, True),
        ("http://app.localhost/x", False, True),
        ("http://10.1.2.3/x", False, True),
        ("http://[::1]/x", False, True),
        ("http://169.254.169.254/latest", False, False),
    ],
)
def test_addresses_that_are_never_called(
    url: str, is_called: bool, is_called_if_private: bool
) -> None:
    """The address in a URL decides, and the setting for private addresses."""
    assert may_be_called(url, private=False) is is_called
    assert may_be_called(url, private=True) is is_called_if_private


def test_a_consumer_of_somebody_else_is_not_taken_over() -> None:
    """Its worker would miss the events that the webhook gets."""
    scene = HookScene()
    scene.register(NAME)
    with pytest.raises(InvalidWebhook, match="without a webhook"):
        scene.make()


def test_one_that_was_interrupted_is_made_by_asking_again() -> None:
    """Its consumer is created last, and the repeat creates it if it is missing."""
    scene = HookScene()
    made = scene.make()
    scene.consumers.remove(FEED, NAME, WHY)
    assert scene.run() is None and not scene.endpoint.asked
    assert scene.make() == made
    scene.post("a")
    scene.run_on()
    assert scene.endpoint.told == ["0"]


def test_it_is_rotated_and_removed() -> None:
    """Its consumer and the parked messages are removed as well; its notes stay."""
    scene = HookScene()
    scene.make(secret=OLD)
    assert scene.admin.rotate(FEED, NAME, {"secret": NEW}) == NEW
    assert scene.registry.webhook(FEED, NAME).signing(scene.scene.now_ms) == [NEW, OLD]
    scene.admin.remove(FEED, NAME, WHY)

    assert not scene.store.consumers(FEED) and not scene.registry.all(FEED)
    assert scene.store.notes(FEED, NAME)[0].what == "delete"
    for act in (
        lambda: scene.admin.rotate(FEED, NAME, {}),
        lambda: scene.admin.remove(FEED, NAME, WHY),
    ):
        with pytest.raises(UnknownWebhook):
            act()


def test_there_are_at_most_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """All are one document."""
    monkeypatch.setattr(limits, "WEBHOOKS_MAX", 1)
    scene = HookScene()
    scene.make()
    with pytest.raises(InvalidWebhook, match="at most 1"):
        scene.admin.put(FEED, "h1", {"url": URL}, filters.EVERYTHING)
    assert [each.name for each in scene.store.consumers(FEED)] == [NAME]


def test_everything_is_told_in_order() -> None:
    """Nothing is sent twice, and the position is then after the last page."""
    scene = hooked(*["a"] * 20)
    scene.run_on()

    assert sorted(scene.endpoint.told, key=int) == [str(at) for at in range(20)]
    assert scene.consumer(NAME).position == scene.view.frontier(FEED)
    assert not scene.consumer(NAME).is_held(scene.scene.now_ms)
    scene.run_on()
    assert len(scene.endpoint.told) == 20


def test_messages_of_one_object_are_never_under_way_together() -> None:
    """Messages of different objects are sent together, up to the limit."""
    scene = HookScene()
    scene.make()
    for name in ("x", "y", "x", "z", "x", "x"):
        scene.scene.post(op(name))
    scene.scene.post(*(op(str(at)) for at in range(20)))
    scene.run_on()

    assert scene.endpoint.batches[:4] == [["x", "y"], ["x", "z"], ["x"], ["x", *"0123456"]]
    assert max(map(len, scene.endpoint.batches)) == limits.WEBHOOK_AT_ONCE


def test_a_filter_holds_and_what_is_not_wanted_is_passed() -> None:
    """This includes pages without a match: the log is not retained for them."""
    scene = hooked("a", "b", "a", "b", types=["b"])
    scene.run_on()
    assert scene.endpoint.told == ["1", "3"]

    scene.post(*["a"] * 3 * limits.ADVANCE_PAGES * limits.ADVANCE_READS_MAX)
    fence = scene.consumer(NAME).fence
    assert scene.run(look=False) is None and scene.consumer(NAME).fence == fence, "took a lease"
    scene.run_on()
    assert scene.consumer(NAME).position == scene.view.frontier(FEED)


def test_what_is_sent() -> None:
    """A CloudEvent under the event's id, with the reference of its object."""
    scene = hooked("a")
    scene.scene.profiles.save(FEED, Profile(object_url="/{{type}}/{{id}}"))
    scene.run_on()
    (request,) = scene.endpoint.requests
    body = json.loads(request.body)

    assert request.url == URL
    assert request.headers["webhook-id"] == body["id"] == scene.places[0].encode()
    assert request.headers["content-type"] == "application/cloudevents+json"
    assert (body["type"], body["subject"]) == ("tidings.update", "a/0")
    assert body["data"]["ref"] == "/a/0"


@pytest.mark.parametrize("erasures", [True, False])
def test_22_4_an_erasure_is_sent_as_its_consumer_asked(erasures: bool) -> None:
    """P22.4: also when its parked message is sent again."""
    scene = HookScene()
    wanted = filters.of({}, erasures=erasures)
    scene.admin.put(FEED, NAME, {"url": URL, "from": "oldest"}, wanted)
    entry = Entry("a", "0", "key 3k2m", "request 7")
    scene.scene.appender.append(FEED, [encode_entry(entry, now_ms=scene.scene.now_ms)])
    scene.run_on()
    scene.consumers.mark(FEED, NAME, "oldest", WHY)
    scene.consumers.park(FEED, NAME, WHY)
    scene.consumers.retry(FEED, NAME, "all", WHY)
    scene.run_on()
    for request in scene.endpoint.requests:
        body = json.loads(request.body)
        assert body["type"] == ("tidings.erase" if erasures else "tidings.delete")
        assert ("data" in body["data"]) == erasures
    assert scene.endpoint.told == ["0", "0"]


@pytest.mark.parametrize("name", ["tidings", "debezium"])
def test_other_formats(name: str) -> None:
    """For a receiver that routes by content type they are JSON."""
    scene = hooked("a", format=name)
    bodies: list[str] = []
    kinds: list[str] = []

    def post(requests: Sequence[Outgoing]) -> Sequence[Verdict]:
        bodies.extend(each.body for each in requests)
        kinds.extend(each.headers["content-type"] for each in requests)
        return [OK] * len(requests)

    delivery = replace(scene.delivery, post=post)
    delivery.run(FEED, scene.registry.webhook(FEED, NAME), look=True)

    assert kinds == ["application/json"]
    assert {"tidings": "event", "debezium": "op"}[name] in json.loads(bodies[0])


def test_what_is_not_taken_is_tried_for_days_and_then_parked() -> None:
    """The delays are those of Standard Webhooks; later messages of the object wait, then
    continue."""
    scene = hooked("a", "a", "a")
    scene.endpoint.says = lambda name: BROKEN if name == "1" else OK
    delays = []
    while (again := scene.run()) is not None:
        delays.append(again // 1000)
        scene.scene.now_ms += again

    assert delays == [5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400, 0]
    assert 3 * 24 * 3600 < sum(delays) < 4 * 24 * 3600
    assert [each.id for each in scene.parked] == [scene.places[1].encode()]
    assert scene.parked[0].attempts == 10 and "503" in scene.parked[0].error
    assert scene.endpoint.told == ["0", "2"] and scene.endpoint.asked.count("2") == 1
    assert scene.store.notes(FEED, NAME)[0].what == "park"


def test_between_attempts_nothing_is_called() -> None:
    """Neither new events nor the clock cause an early attempt."""
    scene = hooked("a", "a")
    scene.endpoint.says = lambda _: BROKEN
    scene.run()
    asked = len(scene.endpoint.asked)
    for _ in range(4):
        scene.post("a")
        scene.scene.now_ms += 1_000
        scene.run()
    assert len(scene.endpoint.asked) == asked
    scene.scene.now_ms += 1_000
    scene.run()
    assert scene.endpoint.asked[asked:] == ["0"], "one by one: the begun batch is in doubt"


def test_the_owner_may_have_it_parked_sooner() -> None:
    """A message that an endpoint refuses holds up the others no longer than that."""
    scene = hooked("a", "a", attempts=2)
    scene.endpoint.says = lambda name: Verdict(400) if name == "0" else OK
    scene.run_on()

    assert [each.attempts for each in scene.parked] == [2]
    assert scene.endpoint.told == ["1"]


def test_an_endpoint_that_is_gone_is_called_no_more() -> None:
    """410 pauses the webhook, with a note; after a resume it continues at the same place."""
    scene = hooked("a", "a", "a")
    scene.endpoint.says = lambda name: GONE if name == "1" else OK
    assert scene.run() is None
    scene.post("a")
    scene.scene.now_ms += 10**9
    assert scene.run() is None and scene.endpoint.asked == ["0", "1", "2"]
    assert "410" in scene.store.notes(FEED, NAME)[0].why

    scene.endpoint.says = lambda _: OK
    scene.consumers.pause(FEED, NAME, WHY, paused=False)
    scene.run_on()
    assert scene.endpoint.told == ["0", "2", "1", "3"]


def test_one_that_is_mended_is_called_at_once_where_its_operator_says_so() -> None:
    """Pause and resume skip the wait for an attempt that is a day away and reset the attempts."""
    scene = hooked("a", attempts=3)
    scene.endpoint.says = lambda _: BROKEN
    for _ in range(2):
        scene.scene.now_ms += scene.run() or 0
    for paused in (True, False):
        scene.consumers.pause(FEED, NAME, WHY, paused=paused)

    assert scene.consumer(NAME).failure is None
    assert scene.run() == 5_000 and not scene.parked


def test_what_is_parked_is_sent_again_or_dropped() -> None:
    """Alone and once for each time that an operator asks, also while another one fails."""
    scene = hooked("a", "a", "a", attempts=1)
    scene.endpoint.says = lambda name: OK if name == "2" else BROKEN
    scene.run_on()
    first, second = (each.id for each in scene.parked)

    scene.consumers.retry(FEED, NAME, first, WHY)
    scene.run_on()
    assert scene.parked[0].attempts == 2 and scene.consumer(NAME).retries == ()
    scene.endpoint.says = lambda _: OK
    scene.consumers.retry(FEED, NAME, first, WHY)
    scene.run_on()
    assert [each.id for each in scene.parked] == [second]
    scene.consumers.drop(FEED, NAME, second, WHY)
    scene.run_on()
    assert scene.endpoint.told == ["2", "0"] and not scene.parked


def test_it_is_replayed_from_where_an_operator_puts_it() -> None:
    """The messages have the same ids, so that receivers can recognize repeats."""
    scene = hooked("a", "a", "a")
    scene.run_on()
    scene.consumers.mark(FEED, NAME, scene.places[0].encode(), WHY)
    scene.run_on()

    ids = [each.headers["webhook-id"] for each in scene.endpoint.requests]
    assert scene.endpoint.told == ["0", "1", "2", "1", "2"] and ids[1:3] == ids[3:]


def test_a_process_that_dies_loses_nothing() -> None:
    """The messages it had begun are sent again at once, one by one: the worker has the same
    name."""
    scene = hooked("a", "a", "a")
    scene.endpoint.dies = True
    with pytest.raises(Killed):
        scene.run()
    scene.endpoint.dies = False
    scene.run_on()

    assert scene.endpoint.batches == [["0", "1", "2"], ["0"], ["1"], ["2"]]


def test_another_worker_keeps_what_it_holds() -> None:
    """Another worker holds the consumer's lease: the webhook waits for the lease to end."""
    scene = hooked("a")
    scene.lease(NAME, "by hand")
    assert scene.run() == limits.CONSUMER_LEASE_MS and not scene.endpoint.asked
    scene.scene.now_ms += limits.CONSUMER_LEASE_MS
    scene.run_on()
    assert scene.endpoint.told == ["0"]


def test_an_operator_who_steps_in_is_obeyed() -> None:
    """A webhook that was marked while its endpoint thought acknowledges nothing of before."""
    scene = hooked("a", "a")
    told: list[str] = []

    def says(name: str) -> Verdict:
        if not told:
            told.append(name)
            scene.consumers.mark(FEED, NAME, "now", WHY)
        return OK

    scene.endpoint.says = says
    assert scene.run() == 0
    scene.run_on()
    assert scene.consumer(NAME).position == scene.view.frontier(FEED)


def test_one_whose_messages_are_gone_waits_for_its_operator() -> None:
    """No message is skipped silently: its state shows it."""
    scene = hooked("a", "a", "a")
    scene.endpoint.says = lambda _: BROKEN
    scene.run()
    scene.consumers.mark(FEED, NAME, scene.places[0].encode(), WHY)
    scene.scene.log.raise_floor(FEED, 3)
    scene.scene.now_ms += 10**9

    assert scene.run() is None and len(scene.endpoint.asked) == 3
    assert scene.consumers.one(FEED, NAME)[1].fell_off


def test_a_store_that_is_away_stops_the_turn() -> None:
    """The runner tries again."""
    scene = hooked("a")
    scene.store.consumer = lambda *_: (_ for _ in ()).throw(Unavailable("no"))  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        scene.run()


class Moody:
    """An endpoint by script, and a process that is killed by script; both recover in the end."""

    def __init__(self, moods: list[int]) -> None:
        self.moods = moods
        self.told: list[tuple[str, str]] = []  # object and id, as they were taken

    def __call__(self, requests: Sequence[Outgoing]) -> Sequence[Verdict]:
        said, dies = [], False
        for each in requests:
            mood = self.moods.pop(0) if self.moods else 0
            dies = dies or mood == 3
            if mood in (0, 2):  # 2: accepted, but the answer is lost
                self.told.append(
                    (json.loads(each.body)["subject"], str(each.headers["webhook-id"])[8:])
                )
            said.append(OK if mood == 0 else Verdict(failure="cut") if mood == 2 else BROKEN)
        if dies:
            raise Killed
        return said


@settings(max_examples=60)
@given(st.lists(st.sampled_from("xyz"), max_size=12), st.lists(st.integers(0, 3), max_size=25))
def test_nothing_is_lost_or_out_of_order_whatever_happens(
    objects: list[str], moods: list[int]
) -> None:
    """With failures, lost answers and kills, each message is delivered, those of an object in
    order."""
    scene = HookScene()
    scene.make()
    moody = Moody(moods)
    delivery = replace(scene.delivery, post=moody)
    for name in objects:
        scene.scene.post(op(name))
    hook = scene.registry.webhook(FEED, NAME)
    for _ in range(500):
        try:
            again = delivery.run(FEED, hook, look=True)
        except Killed:
            continue
        if again is None:
            break
        scene.scene.now_ms = max(again, scene.scene.now_ms)

    parked = {each.id[8:] for each in scene.parked}
    assert len({place for _, place in moody.told} | parked) == len(objects)
    for each in set(objects):
        firsts = list(dict.fromkeys(p for name, p in moody.told if name == f"video/{each}"))
        assert firsts == sorted(firsts)
        taken = [place for name, place in moody.told if name == f"video/{each}"]
        assert all(one <= other for one, other in pairwise(taken)), "an older one came last"


def attempts_of(scene: HookScene) -> list[tuple[int, int, int]]:
    """Return message, number of the attempt and status of each attempt, the oldest first."""
    numbers = {place.encode(): at for at, place in enumerate(scene.places)}
    made = scene.admin.last_attempts(FEED, NAME)[::-1]
    return [(numbers[each.id], each.number, each.status) for each in made]


def test_19_8_attempts_are_kept_with_their_numbers() -> None:
    """Also those of parked messages; an accepted one has no error, another one no URL."""
    scene = hooked("a", "a", attempts=2, url="https://a.example/hook?secret=s3cret")
    scene.endpoint.says = lambda name: OK if name == "1" else BROKEN
    scene.run_on()
    assert attempts_of(scene) == [(0, 1, 503), (1, 1, 200), (0, 2, 503)]
    scene.consumers.retry(FEED, NAME, scene.parked[0].id, WHY)
    scene.endpoint.says = lambda _: Verdict(failure="WebHook did not answer", took_ms=15_000)
    scene.run_on()
    assert attempts_of(scene)[3:] == [(0, 3, 0)]
    latest, *_, first = scene.admin.last_attempts(FEED, NAME)
    assert (latest.error, latest.took_ms) == ("WebHook did not answer", 15_000)
    assert first.error == "WebHook returned status 503" and latest.at_ms > first.at_ms
    assert "s3cret" not in str(scene.admin.last_attempts(FEED, NAME))


def test_19_8_only_the_last_attempts_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of webhooks is limited; a deleted one leaves none to its successor."""
    most = limits.WEBHOOK_ATTEMPTS_KEPT
    scene = hooked(*"a" * (most + 5))
    scene.run_on()
    kept = scene.admin.last_attempts(FEED, NAME)
    assert [each.id for each in kept] == [each.encode() for each in scene.places[: -most - 1 : -1]]
    scene.admin.remove(FEED, NAME, WHY)
    with pytest.raises(UnknownWebhook):
        scene.admin.last_attempts(FEED, NAME)
    scene.make()
    assert not scene.admin.last_attempts(FEED, NAME)

    monkeypatch.setattr(limits, "WEBHOOK_LOGS_MAX", 2)
    log = AttemptLog(0)
    for name in ("a", "b", "a", "c"):
        log.add(FEED, name, kept[:1])
    assert [len(log.last(FEED, name)) for name in "abc"] == [2, 0, 1]
