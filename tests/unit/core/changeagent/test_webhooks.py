"""Webhooks: which ones may be configured, their addresses, and the meaning of their answers."""

from __future__ import annotations

from typing import Any

import pytest

from tidings.core.changeagent.webhooks import Hook, Verdict, as_document, check, hooks_from
from tidings.core.errors import InvalidSetting, RefusedByHook

OK, NO, ILL, GONE = Verdict(204), Verdict(400), Verdict(500), Verdict(failure="gone")


def test_A31_failures_are_numbered_as_the_hooks_are() -> None:
    """The numbers start at 0, one a line; hooks that accept are left out."""
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
    """A client must not retry a refused change; a broken webhook may work again soon."""
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
    """The error gives its place in the list, and not its value, which may be a secret."""
    with pytest.raises(InvalidSetting, match="webHooks") as refused:
        hooks_from(given)
    assert "secret" not in str(refused.value.body())


def test_hooks_are_shown_as_they_were_given() -> None:
    """Headers are included if there are any."""
    given = [{"uri": "https://a/x?y=1", "headers": {"foo": "bar"}}, {"uri": "http://b"}]

    assert as_document(hooks_from(given)) == given
    assert hooks_from(None) == ()
    assert "bar" not in repr(Hook("http://a", (("foo", "bar"),)))
