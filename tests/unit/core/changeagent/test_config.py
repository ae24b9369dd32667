"""Test the configuration of a feed, its durations and its administration."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import MemoryOperatorDocuments
from tests.unit.core.changeagent.gates import gate
from tests.unit.core.scene import FEED, Scene
from tidings.core.changeagent.config import (
    Administrator,
    Configuration,
    Purges,
    decode_configuration,
    encode_configuration,
    format_duration,
    parse_duration,
    replace_configuration,
)
from tidings.core.changeagent.documents import CONFIGURATION, OperatorDocument
from tidings.core.changeagent.webhooks import Hook, Verdict, as_document, check, hooks_from
from tidings.core.errors import InvalidSetting, RefusedByHook, Unavailable
from tidings.core.model.feeds import Retention

S = 1_000_000_000
FULL = Configuration(5, 60 * S, 20 * S, 3 * S, (Hook("http://a", (("b", "c"),)),))


def test_A38_what_is_stored_comes_back() -> None:
    """Without a stored document the defaults apply."""
    assert decode_configuration(encode_configuration(FULL)) == FULL
    assert decode_configuration("") == Configuration()
    assert list(Configuration().document()) == [
        "minPurgeRecords",
        "minPurgeDuration",
        "electionTimeout",
        "heartbeatTimeout",
        "webHooks",
    ]


@pytest.mark.parametrize("document", [None, {}])
def test_A38_durations_that_are_left_out_stay(document: Any) -> None:
    """Records and webhooks go, as in changeagent."""
    assert replace_configuration(FULL, document) == Configuration(0, 60 * S, 20 * S, 3 * S)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "the configuration must be a mapping"),
        ({"heartbeatTimeout": "99ms"}, "Heartbeat timeout must be at least 100ms"),
        ({"electionTimeout": "3.9s"}, "Election timeout 3.9s must be at least 4s"),
        ({"heartbeatTimeout": "6s"}, "Election timeout 10s must be at least 12s"),
        ({"minPurgeDuration": 5}, 'Error parsing minPurgeDuration: time: invalid duration "5"'),
        ({"minPurgeDuration": "-1s"}, "minPurgeDuration must not be negative"),
        ({"minPurgeRecords": True}, "minPurgeRecords must be a whole number"),
        ({"minPurgeRecords": "5"}, "minPurgeRecords must be a whole number"),
        ({"minpurgerecords": 5, 7: 1}, "Unknown key: 7, minpurgerecords"),
    ],
)
def test_A39_what_breaks_a_rule_is_refused(document: Any, message: str) -> None:
    """The message is changeagent's if it had one; unknown keys are never ignored."""
    with pytest.raises(InvalidSetting, match=message):
        replace_configuration(Configuration(), document)


@pytest.mark.parametrize(
    ("records", "seconds", "purge"),
    [(0, 0, None), (5, 0, None), (0, 5, None), (5, 5, Retention(5_000, 5))],
)
def test_A24_a_purge_needs_both(records: int, seconds: int, purge: Retention | None) -> None:
    """The retention is given to the trimmer for each feed."""
    operator_documents = MemoryOperatorDocuments()
    operator_documents.write(
        "main",
        CONFIGURATION,
        OperatorDocument(encode_configuration(Configuration(records, seconds * S))),
    )

    assert Purges(operator_documents)("main") == purge
    assert Purges(operator_documents)("other") is None


@pytest.mark.parametrize("name", ["Authorization", "cookie", "X-Api-Key", "x-hub-signature"])
def test_credentials_in_headers_are_stored_and_not_shown(name: str) -> None:
    """The redacted form can be written back and keeps the values; another address cannot read
    them."""
    given = {"webHooks": [{"uri": "http://a", "headers": {name: "abracadabra", "foo": "bar"}}]}
    configuration = replace_configuration(Configuration(), given)
    shown = configuration.redacted_json()

    assert shown["webHooks"] == [{"uri": "http://a", "headers": {name: "redacted", "foo": "bar"}}]
    assert replace_configuration(configuration, shown) == configuration
    assert decode_configuration(encode_configuration(configuration)) == configuration
    elsewhere = {"webHooks": [{"uri": "http://b", "headers": {name: "redacted"}}]}
    with pytest.raises(InvalidSetting, match="has no stored value"):
        replace_configuration(configuration, elsewhere)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0", 0),
        ("300ms", 300_000_000),
        ("-1.5h", -5400 * S),
        ("2h45m", 9900 * S),
        ("1h0m0.5s", 3600 * S + S // 2),
        (".5s", S // 2),
        ("1.s", S),
        ("3us", 3000),
        ("3\u00b5s", 3000),
        ("+7ns", 7),
    ],
)
def test_what_go_reads(text: str, ns: int) -> None:
    """Decimal numbers with units, one after the other."""
    assert parse_duration(text) == ns


@pytest.mark.parametrize(
    "text", ["", "1", "s", "1x", "1 s", "--1s", ".s", "1e3s", "\u0661s", "9999999h"]
)
def test_what_go_refuses(text: str) -> None:
    """The error has Go's words."""
    with pytest.raises(ValueError, match="time: invalid duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1500, "1.5\u00b5s"),
        (300_000_000, "300ms"),
        (10 * S, "10s"),
        (90 * S, "1m30s"),
        (3600 * S, "1h0m0s"),
        (-5400 * S, "-1h30m0s"),
        (100 * S, "1m40s"),
    ],
)
def test_what_go_prints(ns: int, text: str) -> None:
    """The largest units that fit."""
    assert format_duration(ns) == text


@given(st.integers(-(2**62), 2**62))
def test_what_is_printed_is_read(ns: int) -> None:
    """The round trip is exact to the nanosecond."""
    assert parse_duration(format_duration(ns)) == ns


class Contended(MemoryOperatorDocuments):
    """A store to which another process writes before each of the first *times* writes."""

    def __init__(self, times: int = 0) -> None:
        super().__init__()
        self.times = times

    def write(self, feed: str, name: str, operator_document: OperatorDocument) -> bool:
        if self.times:
            self.times -= 1
            standing = super().operator_document(feed, name)
            text = '{"electionTimeout":"1m"}'
            super().write(feed, name, OperatorDocument(text, standing.version))
        return super().write(feed, name, operator_document)


def administrator(documents: MemoryOperatorDocuments) -> Administrator:
    return Administrator(documents, gate(Scene(), documents))


def test_a_configuration_is_made_on_top_of_what_others_set() -> None:
    """Omitted fields keep the values of others; if every write is overtaken, the error is
    temporary."""
    admin = administrator(Contended(1))
    assert admin.configure(FEED, {"heartbeatTimeout": "3s"}).election_ns == 60_000_000_000
    assert admin.configuration(FEED).heartbeat_ns == 3_000_000_000
    with pytest.raises(Unavailable):
        administrator(Contended(9)).configure(FEED, {})


def test_a_wrong_configuration_changes_nothing() -> None:
    """It does not use up a version either."""
    documents = MemoryOperatorDocuments()
    with pytest.raises(InvalidSetting):
        administrator(documents).configure(FEED, {"webHooks": 1})
    assert documents.operator_document(FEED, CONFIGURATION) == OperatorDocument()
    assert administrator(documents).configuration(FEED) == Configuration()


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
