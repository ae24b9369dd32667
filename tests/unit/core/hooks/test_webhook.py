"""Webhooks: how they are signed, and what operators may make of them."""

from __future__ import annotations

import time
from base64 import b64encode
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook as Receiver
from standardwebhooks.webhooks import WebhookVerificationError

from tests.unit.core.consumers.consumer_scene import WHY
from tests.unit.core.hooks.hook_scene import NAME, URL, HookScene
from tests.unit.core.scene import FEED
from tidings.core import limits
from tidings.core.errors import InvalidConsumer
from tidings.core.hooks.webhook import InvalidWebhook, Secret, UnknownWebhook, Webhook, secret_of
from tidings.core.model import filters

OLD, NEW = (secret_of(bytes([at]) * 32) for at in (1, 2))
BODY = '{"data":"\u00fc\u2028"}'


@pytest.fixture
def now_ms() -> int:
    """The library compares it with its clock, and takes five minutes for too old."""
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
    """So that its owner can change it without a moment in which nothing is verified."""
    hook = Webhook("h", URL, (Secret(OLD),)).rotated(NEW, now_ms)
    headers = hook.headers("some-id", BODY, now_ms)
    assert Receiver(OLD).verify(BODY, headers) and Receiver(NEW).verify(BODY, headers)

    later = now_ms + limits.WEBHOOK_ROTATION_MS
    assert hook.signing(later - 1) == [NEW, OLD] and hook.signing(later) == [NEW]
    third = secret_of(b"3" * 32)
    assert hook.rotated(third, now_ms).signing(now_ms) == [third, NEW], "two at most"


def test_secrets_are_shown_by_nobody() -> None:
    """Neither in a log that shows the webhook, nor in an error."""
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
    """The error names the field; neither a webhook nor a consumer is there."""
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
    """What else is asked for it gets; its secret is told once."""
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


def test_a_consumer_of_somebody_else_is_not_taken_over() -> None:
    """Its worker would miss what the webhook is told."""
    scene = HookScene()
    scene.register(NAME)
    with pytest.raises(InvalidWebhook, match="no webhook"):
        scene.make()


def test_one_that_was_interrupted_is_made_by_asking_again() -> None:
    """Its consumer comes last, and is what is found missing."""
    scene = HookScene()
    made = scene.make()
    scene.consumers.remove(FEED, NAME, WHY)
    assert scene.run() is None and not scene.endpoint.asked
    assert scene.make() == made
    scene.post("a")
    scene.run_on()
    assert scene.endpoint.told == ["0"]


def test_it_is_rotated_and_removed() -> None:
    """With its consumer and what is parked; its notes stay."""
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
