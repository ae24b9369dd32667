"""The outbox: a message is appended once, or put aside, and never lost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.fakes import MemoryOutbox
from tests.unit.core.scene import FEED, Scene, op, unavailable
from tidings.core.errors import Unavailable
from tidings.core.ingest.outbox import ITEMS, OPERATIONS, Forwarder, OutboxMessage
from tidings.core.settings.values import Resource
from tidings.core.triton.items import Items


def message(name: str, *operations: Mapping[str, object], kind: str = OPERATIONS) -> OutboxMessage:
    return OutboxMessage(name, kind, "\n".join(map(json.dumps, operations)))


def forwarder(scene: Scene, outbox: MemoryOutbox) -> Forwarder:
    return Forwarder(
        outbox=outbox,
        appender=scene.appender,
        lines={OPERATIONS: scene.ingester.lines, ITEMS: Items(scene.profiles)},
        runtime=scene.runtime,
    )


def logged(scene: Scene) -> list[str]:
    return [
        json.loads(line)["id"] for page in scene.reader.read(FEED, 0).pages for line in page.lines
    ]


def test_messages_are_appended_in_their_order(scene: Scene) -> None:
    """Each as one page, operations and items alike; then nothing is left."""
    vm = Resource("vm", ("nic",), "/vms")
    scene.profiles.save(FEED, replace(scene.profiles.profile(FEED), resources=(vm,), max_age_s=60))
    item = {"changeKind": {"resource": "vm", "subResources": ["nic"]}, "changedResourceId": "c"}
    outbox = MemoryOutbox()
    outbox.leave(FEED, message("2", item, kind=ITEMS))
    outbox.leave(FEED, message("1", op("a"), op("b")))
    outbox.leave("other", message("1", op("z")))
    assert forwarder(scene, outbox).run(FEED) == 2
    assert logged(scene) == ["a", "b", "c"]
    assert outbox.pending(FEED) == [] and len(outbox.pending("other")) == 1


def test_F43_a_crash_behind_the_append_repeats_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message is still in the outbox, is forwarded again, and is in the log once."""
    outbox = MemoryOutbox()
    outbox.leave(FEED, message("1", op("a")))
    with monkeypatch.context() as patch:
        patch.setattr(outbox, "done", unavailable)
        with pytest.raises(Unavailable):
            forwarder(scene, outbox).run(FEED)
    assert len(outbox.pending(FEED)) == 1
    forwarder(scene, outbox).run(FEED)
    assert logged(scene) == ["a"]


def test_a_message_that_is_refused_is_put_aside(scene: Scene) -> None:
    """It is stored with the reason; the messages after it are appended."""
    outbox = MemoryOutbox()
    outbox.leave(FEED, message("1", {"event": "gone"}))
    outbox.leave(FEED, message("2", op("b")))
    forwarder(scene, outbox).run(FEED)
    assert logged(scene) == ["b"]
    assert outbox.aside == {(FEED, "1"): "line 1: event: must be one of insert, update, delete"}
    assert scene.counted["LettersRefused"] == 1
