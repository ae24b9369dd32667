"""Webhooks: what may be configured, where they may be, and what their answers mean."""

from __future__ import annotations

from typing import Any

import pytest
from tidings.core.changeagent.webhooks import (
    Hook,
    Verdict,
    as_document,
    check,
    hooks_from,
    may_call,
)
from tidings.core.errors import InvalidSetting, RefusedByHook

OK, NO, ILL, GONE = Verdict(204), Verdict(400), Verdict(500), Verdict(failure="gone")


def test_A31_failures_are_numbered_as_the_hooks_are() -> None:
    """From 0, one a line, without those that accept."""
    check([])
    check([OK, Verdict(200), Verdict(299)])
    with pytest.raises(RefusedByHook) as refused:
        check([OK, NO, GONE])

    text = "Error 1: WebHook returned status 400\nError 2: gone\n"
    assert (str(refused.value), refused.value.status) == (text, 502)


@pytest.mark.parametrize(
    ("verdicts", "status"), [([NO], 400), ([NO, OK], 400), ([ILL], 502), ([Verdict(302)], 502)]
)
def test_a_refusal_is_not_a_failure(verdicts: list[Verdict], status: int) -> None:
    """A client must not try again what is refused; what is broken may be well soon."""
    with pytest.raises(RefusedByHook) as refused:
        check(verdicts)
    assert refused.value.status == status


@pytest.mark.parametrize(
    "given",
    [
        "http://a",
        [{"uri": "ftp://a"}],
        [{"uri": "http://"}],
        [{"uri": "http://a:0"}],
        [{"uri": "http://a:x"}],
        [{"uri": "http://ann:secret@a"}],
        [{"uri": "http://a b"}],
        [{"uri": 7}],
        [{}],
        [{"uri": "http://a", "header": {}}],
        [{"uri": "http://a", "headers": []}],
        [{"uri": "http://a", "headers": {"a b": "c"}}],
        [{"uri": "http://a", "headers": {"a": "b\r\nc: d"}}],
        [{"uri": "http://a", "headers": {"a": 1}}],
        [{"uri": "http://a"}] * 11,
    ],
)
def test_what_cannot_be_called_is_refused(given: Any) -> None:
    """By its place in the list; what it held is not repeated: it may be a secret."""
    with pytest.raises(InvalidSetting, match="webHooks") as refused:
        hooks_from(given)
    assert "secret" not in str(refused.value.body())


def test_hooks_are_shown_as_they_were_given() -> None:
    """With their headers, where there are any."""
    given = [{"uri": "https://a/x?y=1", "headers": {"foo": "bar"}}, {"uri": "http://b"}]

    assert as_document(hooks_from(given)) == given
    assert hooks_from(None) == ()
    assert "bar" not in repr(Hook("http://a", (("foo", "bar"),)))


@pytest.mark.parametrize(
    ("address", "everywhere", "allowed"),
    [
        ("93.184.216.34", True, True),
        ("2606:2800:220:1::1", True, True),
        ("127.0.0.1", False, True),
        ("10.1.2.3", False, True),
        ("172.16.0.1", False, True),
        ("192.168.1.1", False, True),
        ("100.64.0.1", False, True),
        ("::1", False, True),
        ("fd12::1", False, True),
        ("::ffff:10.0.0.1", False, True),
        ("169.254.1.1", False, False),
        ("169.254.170.2", False, False),
        ("169.254.170.23", False, False),
        ("fe80::1", False, False),
        ("fd00:ec2::23", False, False),
        ("::ffff:169.254.170.2", False, False),
        ("64:ff9b::a9fe:aa02", False, False),
        ("64:ff9b::a00:1", False, True),
        ("64:ff9b:1::a9fe:aa02", False, False),
        ("64:ff9b:1:a9fe:aa:200::", False, False),
        ("::169.254.170.2", False, False),
        ("::10.0.0.1", False, True),
        ("::ffff:0:169.254.169.254", False, False),
        ("2001:0:4136:e378:8000:63bf:5601:5601", False, False),
        ("169.254.169.254", False, False),
        ("::ffff:169.254.169.254", False, False),
        ("64:ff9b::a9fe:a9fe", False, False),
        ("64:ff9b::5db8:d822", True, True),
        ("2002:a9fe:a9fe::1", False, False),
        ("2002:a01:203::1", False, True),
        ("fd00:ec2::254", False, False),
        ("0.0.0.0", False, False),
        ("224.0.0.1", False, False),
    ],
)
def test_where_a_hook_may_be(address: str, everywhere: bool, allowed: bool) -> None:
    """In the world; on our own networks where that is allowed; at the metadata never."""
    assert may_call(address, private=False) is everywhere
    assert may_call(address, private=True) is allowed
