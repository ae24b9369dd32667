"""The first message of a listener; tests/compat/triton checks the refusals word by word."""

from __future__ import annotations

import json

import pytest

from tidings.core.errors import InvalidRegistration
from tidings.core.settings.values import Resource
from tidings.core.triton.registration import V1, V2, Kind, Listener, Registered, looks_like, parse
from tidings.http.endpoints.browse import Registration

VM = {"vm": Resource("vm", ("nic",), "/vms")}
KIND = {"resource": "vm", "subResources": ["nic"]}


@pytest.mark.parametrize(
    ("text", "does"),
    [
        ('{"instance":"i"}', True),
        ('{"changeKind":7}', True),
        ('{"resources":[]}', True),
        ('{"instance":"i","action":"subscribe"}', False),
        ('{"service":"s"}', False),
        ('["instance"]', False),
        ("instance", False),
        ("[" * 100_000, False),
    ],
)
def test_a_registration_is_known_by_its_fields(text: str, does: bool) -> None:
    """This is for handshakes without a protocol; a message with an action is never a
    registration."""
    assert looks_like(text) is does


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"instance": "x" * 513}, "identifier"),
        ({"instance": "a\0b"}, "identifier"),
        ({"service": "x" * 1023}, "at most 1024 bytes"),
        ({"changeKind": {**KIND, "subResources": ["x" * 641]}}, "subResources"),
        ({"changeKind": {**KIND, "subResources": [7]}}, "subResources"),
        ({"changeKind": {**KIND, "subResources": list(map(str, range(101)))}}, "at most 100"),
        ({"changeKind": {**KIND, "subResources": [[[]] * 9] * 9}, "deep": []}, "subResources"),
    ],
)
def test_what_no_store_takes_is_refused(fields: dict[str, object], words: str) -> None:
    """Nothing is stored before that."""
    text = json.dumps({"instance": "i", "changeKind": KIND, **fields})
    with pytest.raises(InvalidRegistration, match=words):
        parse(text, Listener(V1, "main"), VM)


def test_a_text_that_is_too_long_is_not_read() -> None:
    """The limit is that of every message, 32 KiB."""
    with pytest.raises(InvalidRegistration, match="failed to parse v2"):
        parse(" " * (32 * 1024 + 1), Listener(V2, "main"), VM)


@pytest.mark.parametrize("service", ["tcns", None, 7, {"name": "tcns"}, "ä\ud800"])
def test_a_service_is_shown_as_it_was_said(service: object) -> None:
    """It is not validated; only people read it."""
    text = json.dumps({"instance": "", "service": service, "changeKind": KIND})
    listener = parse(text, Listener(V1, "main"), VM).listener
    registered = Registered("c", listener.instance, listener.service, Kind("vm", ("nic",)))
    shown = Registration.of(registered).document()
    assert shown == {"instance": "", "service": service, "changeKind": KIND}
