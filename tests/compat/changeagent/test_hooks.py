"""Webhooks: calls before a change is in the log, and the form of a refusal."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest

from tests.compat.changeagent.client import Changes
from tests.compat.oplog.feed import ask
from tests.contract.answering import Answer, Answering, ReceivedRequest, answering
from tidings.core.changeagent.webhooks import Hook, Verdict
from tidings.http.outbound.webhooks import Webhooks

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
