"""Webhooks of a running server: created by the command, called by the server, and resumed after a
kill.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from standardwebhooks.webhooks import Webhook as Receiver

from tests.compat.oplog.wire import until
from tests.contract.answering import Answer, ReceivedRequest, answering
from tests.unit.core.hooks.hook_scene import NAME, hooked
from tests.unit.core.scene import FEED
from tidings.client import Operator
from tidings.client.cli.main import main
from tidings.core import limits
from tidings.core.changeagent.webhooks import Outgoing, Verdict
from tidings.core.model.filters import EVERYTHING
from tidings.server import wakeups
from tidings.server.running import Server

OPTIONS = ("--setting", "TIDINGS_HOOKS_PRIVATE=true")
PATIENCE_S = 180.0


def run(server: Server, *command: str) -> str:
    """Return the output of `tidings`, which must succeed."""
    done = CliRunner().invoke(main, [*command, "--url", server.url])
    assert done.exit_code == 0, done.output
    return done.stdout  # stderr also has errors of the endpoint about broken connections


def create(server: Server, url: str, name: str, *options: str) -> str:
    """Create a webhook; return its secret."""
    return run(server, "hooks", "create", url, "--name", name, *options).split()[-1]


def post(server: Server, *names: str, kind: str = "video") -> list[str]:
    operations = [{"event": "update", "type": kind, "id": name} for name in names]
    prefer = {"prefer": "return=representation"}
    ids: list[str] = httpx.post(server.url, json=operations, headers=prefer).json()["ids"]
    return ids


def verified(asked: ReceivedRequest, secret: str) -> str:
    """Return the event's id of a request with a valid signature."""
    event = Receiver(secret).verify(asked.body, asked.headers)
    headers = {name.lower(): value for name, value in asked.headers.items()}
    assert headers["webhook-id"] == event["id"]
    return str(event["id"])


def shown(server: Server, name: str) -> dict[str, object]:
    hook: dict[str, object] = json.loads(run(server, "hooks", "show", name))
    return hook


def test_a_secret_is_replaced_and_a_webhook_deleted(server: Server) -> None:
    """Both secrets sign; after the deletion no event is sent."""
    with answering(Answer(200)) as it, answering(Answer(200)) as other:
        old = create(server, it.url, "turning", "--types", "turning-type")
        create(server, other.url, "beside", "--types", "turning-type")
        new = run(server, "hooks", "rotate", "turning").split()[-1]
        assert shown(server, "turning")["secrets"] == 2
        post(server, "a", kind="turning-type")
        until(lambda: it.asked and other.asked)
        assert verified(it.asked[0], old) == verified(it.asked[0], new)
        assert "turning" in run(server, "hooks", "list")
        run(server, "hooks", "delete", "turning", "--why", "enough")
        assert "turning" not in run(server, "hooks", "list")
        post(server, "b", kind="turning-type")
        until(lambda: len(other.asked) == 2)

    assert len(it.asked) == 1
    assert httpx.get(f"{server.url}feeds/main/hooks/turning").status_code == 404


def test_a_kill_loses_nothing(server: Server) -> None:
    """Events in flight are sent again, and none of the acknowledged ones."""
    with answering(Answer(200)) as it:
        secret = create(server, it.url, "mine", "--types", "mine-type")
        ids = post(server, "0", kind="mine-type")
        until(lambda: len(it.asked) == 1)
        with it.lock:  # it answers no request in the meantime
            ids += post(server, *(str(at) for at in range(1, 20)), kind="mine-type")
            until(lambda: shown(server, "mine")["worker"])
            server.kill()
        server.start()
        until(lambda: {verified(each, secret) for each in it.asked} >= {*ids})
        told = [verified(each, secret) for each in it.asked]

    assert told.count(ids[0]) == 1
    assert len(told) <= len(ids) + limits.WEBHOOK_AT_ONCE


def test_it_stops_in_time_and_calls_no_private_address_unless_allowed() -> None:
    """An endpoint hangs; a server that may not call private addresses sends it nothing."""
    with Server(*OPTIONS) as server, answering(Answer(200)) as it:
        create(server, it.url, "hangs")
        came, answer = threading.Event(), it.next_answer

        def hang(asked: ReceivedRequest) -> Answer:
            came.set()
            return answer(asked)

        it.next_answer = hang  # type: ignore[method-assign]
        with it.lock:
            post(server, "a")
            assert came.wait(PATIENCE_S)
            assert server.stop() == 0  # a server that does not end in time is killed
        until(lambda: it.asked)
        server.arguments = ()
        server.start()
        until(lambda: shown(server, "hangs")["failure"])

        assert "may not be called" in str(shown(server, "hangs")["failure"])
        assert len(it.asked) == 1


def test_the_next_attempt_is_made_when_it_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made by the clock, without new events; another endpoint that hangs does not delay
    it."""
    monkeypatch.setattr(wakeups, "LOOK_S", 0.02)
    scene, let_go = hooked("a"), threading.Event()
    scene.admin.put(FEED, "h1", {"url": "https://hangs.example/", "from": "oldest"}, EVERYTHING)
    asked: list[int] = []

    def post(requests: Sequence[Outgoing]) -> Sequence[Verdict]:
        if "hangs" in requests[0].url:
            let_go.wait(PATIENCE_S)
        else:
            asked.append(scene.scene.now_ms)
        return [Verdict(503)] * len(requests)

    delivery = replace(scene.delivery, post=post)
    runner = wakeups.Webhooks(
        scene.registry, delivery, lambda: [FEED], scene.scene.clock, let_go.set
    )
    began_ms = scene.scene.now_ms
    runner.start()
    until(lambda: scene.consumer(NAME).failure)
    scene.scene.now_ms += 4_999
    time.sleep(10 * wakeups.LOOK_S)
    scene.scene.now_ms += 1
    until(lambda: len(asked) == 2)
    runner.stop()

    assert asked == [began_ms, began_ms + 5_000]


def test_a_webhook_without_work_rests() -> None:
    """It runs again after a page, and after a change of its consumer, not each second."""
    scene = hooked("a")
    runs: list[bool] = []
    ended = threading.Event()

    class Delivery:
        def run(self, feed: str, hook: object, *, look: bool) -> int | None:
            runs.append(look)
            return scene.delivery.run(feed, hook, look=look)  # type: ignore[arg-type]

    delivery: Any = Delivery()
    runner = wakeups.Webhooks(
        scene.registry, delivery, lambda: [FEED], scene.scene.clock, ended.set
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wakeups, "LOOK_S", 0.02)
        runner.start()
        for wake in (runner._known.get, runner.wake, runner.reload):
            wake(FEED)
            until(lambda: runs and runs[-1] and not runner._active)
            count = len(runs)
            time.sleep(10 * wakeups.LOOK_S)
            assert len(runs) == count
            runs.clear()
        runner.stop()


def test_19_8_attempts_are_shown(server: Server) -> None:
    """By the command and the client, with the duration, and without the URL."""
    says = [Answer(503), Answer(200)]
    with answering(*says) as endpoint:
        create(server, f"{endpoint.url}?token=s3cret", "attempted", "--types", "attempted")
        assert run(server, "hooks", "attempts", "attempted").startswith("no attempt since 20")
        (event,) = post(server, "x", kind="attempted")
        until(lambda: len(endpoint.asked) >= 2)
        until(lambda: shown(server, "attempted")["failure"] is None)
    with Operator(server.url) as operator:
        made = operator.attempts("attempted")
    latest, first = map(dict, made["attempts"])
    assert made["since"] < first["at"] < latest["at"]
    assert 0 <= first.pop("duration_ms") < 10_000 and first.pop("at") and latest["accepted"]
    error = "WebHook returned status 503"
    assert first == {"id": event, "number": 1, "accepted": False, "status": 503, "error": error}
    assert (latest["id"], latest["number"], latest["error"]) == (event, 2, None)
    assert json.loads(run(server, "hooks", "attempts", "attempted", "--json")) == made
    table = run(server, "hooks", "attempts", "attempted").splitlines()
    assert "accepted" in table[1] and error in table[2] and "s3cret" not in str((table, made))
    unknown = httpx.get(f"{server.url}feeds/main/hooks/none/attempts")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "unknown_webhook")
