"""Names of feeds, addresses of webhooks, and timestamps."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.core.errors import InvalidFeed, UnknownFeed
from tidings.core.model import feeds, timestamps
from tidings.core.model.addresses import may_call

KNOWN = frozenset({"main", "other"})


@pytest.mark.parametrize("name", [feeds.DEFAULT_FEED, "main", "a", "0", "a.b-c_d", "9" * 63])
def test_what_names_a_feed(name: str) -> None:
    """It comes back as it is."""
    assert feeds.check_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Main",
        "-a",
        ".a",
        "_a",
        "a b",
        "a/b",
        "a#b",
        "a" * 64,
        "main\n",
        "\u0661",
        "\u00e4",
        "\0",
    ],
)
def test_what_does_not(name: str) -> None:
    """It becomes part of keys and paths, so little is allowed."""
    with pytest.raises(InvalidFeed, match="feed: must be 1 to 63 of a-z, 0-9"):
        feeds.check_known(name, KNOWN)


def test_unknown_feeds() -> None:
    """A good name is not yet a feed."""
    assert feeds.check_known("other", KNOWN) == "other"
    with pytest.raises(UnknownFeed, match="feed: no such feed here"):
        feeds.check_known("third", KNOWN)


PUBLIC = """
    93.184.216.34 2606:2800:220:1::1 64:ff9b::5db8:d822 2606:2800:220:1:200:5efe:5db8:d822
"""
# Also as IPv4 within IPv6.
PRIVATE = """
    127.0.0.1 10.1.2.3 172.16.0.1 192.168.1.1 100.64.0.1 ::1 fd12::1 ::ffff:10.0.0.1
    64:ff9b::a00:1 ::10.0.0.1 2002:a01:203::1 ::127.0.0.1 ::ffff:127.0.0.1 ::ffff:0:127.0.0.1
    64:ff9b::7f00:1 2002:7f00:1::1 2002:5db8:d822::5efe:7f00:1 2606:2800:220:1::5efe:7f00:1
    2606:2800:220:1:200:5efe:7f00:1 fd12::200:5efe:10.0.0.1
"""
# Link-local, metadata at any address that has it, multicast, what IANA's registries have for
# something else or for nothing; within IPv6 too.
NEVER = """
    169.254.1.1 169.254.170.2 169.254.170.23 fe80::1 fd00:ec2::23 ::ffff:169.254.170.2
    64:ff9b::a9fe:aa02 64:ff9b:1::a9fe:aa02 64:ff9b:1:a9fe:aa:200:: ::169.254.170.2
    ::ffff:0:169.254.169.254 2001:0:4136:e378:8000:63bf:5601:5601 169.254.169.254
    ::ffff:169.254.169.254 64:ff9b::a9fe:a9fe 2002:a9fe:a9fe::1 fd00:ec2::254 0.0.0.0 224.0.0.1
    168.63.129.16 ::ffff:168.63.129.16 192.0.0.192 100.100.100.200 fd20:ce::254
    fd00:c1::a9fe:a9fe fd00:42::42 fec0::1 fec0::1%eth0 fe80::1%1 ff0e::1 240.0.0.1
    255.255.255.255 0.1.2.3 192.0.0.9 192.0.2.1 192.88.99.1 198.18.0.1 203.0.113.9 100::1
    2001:db8::1 2001:20::1 3fff::1 5f00::1 4000::1 :: ::5efe:7f00:1
    2606:2800:220:1:300:5efe:a9fe:a9fe 2001:0:a9fe:a9fe:0:0:5db8:d822
"""
ADDRESSES = [
    *((address, True, True) for address in PUBLIC.split()),
    *((address, False, True) for address in PRIVATE.split()),
    *((address, False, False) for address in NEVER.split()),
]


@pytest.mark.parametrize(("address", "everywhere", "allowed"), ADDRESSES)
def test_where_a_hook_may_be(address: str, everywhere: bool, allowed: bool) -> None:
    """Only on the Internet, or on private networks if allowed; cloud metadata is never called."""
    assert may_call(address, private=False) is everywhere
    assert may_call(address, private=True) is allowed


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OFFSETS = st.integers(-23 * 60 - 59, 23 * 60 + 59).map(lambda m: timezone(timedelta(minutes=m)))


@pytest.mark.parametrize(
    ("given_", "kept"),
    [
        ("2026-11-20T17:19:10.940Z", "2026-11-20T17:19:10.94Z"),
        ("2026-11-20T17:19:10Z", "2026-11-20T17:19:10Z"),
        ("2026-11-20T17:19:10.000Z", "2026-11-20T17:19:10Z"),
        ("2026-11-20t17:19:10z", "2026-11-20T17:19:10Z"),
        ("2026-11-20T17:19:10.9999999Z", "2026-11-20T17:19:10.999Z"),
        ("2026-11-20T17:19:10.000999Z", "2026-11-20T17:19:10Z"),
        ("2026-11-20T17:19:10+02:00", "2026-11-20T15:19:10Z"),
        ("2026-11-20T17:19:10-02:30", "2026-11-20T19:49:10Z"),
        ("2026-11-20T17:19:10-00:00", "2026-11-20T17:19:10Z"),
        ("2026-12-31T23:59:60Z", "2026-12-31T23:59:59Z"),
        ("2024-02-29T00:00:00+00:01", "2024-02-28T23:59:00Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
        ("0001-01-01T00:00:00-23:59", "0001-01-01T23:59:00Z"),
    ],
)
def test_the_normal_form(given_: str, kept: str) -> None:
    """UTC, cut (never rounded) to milliseconds, no trailing zeros, a leap second held back."""
    assert timestamps.normal_form(given_) == kept


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-11-20",
        "2026-11-20T17:19:10",
        "2026-11-20 17:19:10Z",
        "2026-11-20T17:19Z",
        "2026-11-20T17:19:10.Z",
        "2026-11-20T17:19:10,5Z",
        "2026-11-20T17:19:10.1234567890123Z",
        "2026-11-20T17:19:10+0200",
        "2026-11-20T17:19:10+02",
        "2026-11-20T17:19:10+24:00",
        "2026-11-20T17:19:10+00:60",
        "2026-13-01T00:00:00Z",
        "2026-00-01T00:00:00Z",
        "2026-02-29T00:00:00Z",
        "2026-11-20T24:00:00Z",
        "2026-11-20T17:60:10Z",
        "2026-11-20T17:19:61Z",
        "0000-01-01T00:00:00Z",
        "10000-01-01T00:00:00Z",
        "-001-01-01T00:00:00Z",
        "9999-12-31T23:59:59-23:59",
        "0001-01-01T00:00:00+00:01",
        "\u0662\u0660\u0662\u0666-11-20T17:19:10Z",
        " 2026-11-20T17:19:10Z",
        "2026-11-20T17:19:10Z\n",
        "1795195150974",
    ],
)
def test_what_is_no_timestamp(text: str) -> None:
    """Other formats, impossible days and what leaves the years 1 to 9999 are refused."""
    with pytest.raises(ValueError, match=r"."):
        timestamps.normal_form(text)


@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=OFFSETS))
def test_the_normal_form_names_the_same_moment(moment: datetime) -> None:
    """This holds for any offset, to the millisecond; the normal form of a normal form is itself."""
    kept = timestamps.normal_form(moment.isoformat())

    cut = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    assert datetime.fromisoformat(kept) == cut
    assert timestamps.normal_form(kept) == kept


@given(st.text())
def test_any_text_is_a_timestamp_or_a_value_error(text: str) -> None:
    """Nothing else can come out."""
    with suppress(ValueError):
        assert timestamps.normal_form(text).endswith("Z")


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_milliseconds_and_back(ms: int) -> None:
    """Exact over all years; corrections are decided by it."""
    kept = timestamps.from_ms(ms)

    assert timestamps.to_ms(kept) == ms
    assert timestamps.normal_form(kept) == kept
    assert datetime.fromisoformat(kept) == EPOCH + timedelta(milliseconds=ms)


@pytest.mark.parametrize("text", ["2026-11-20T17:19:10.940Z", "2026-11-20", "now"])
def test_only_the_normal_form_becomes_milliseconds(text: str) -> None:
    """Anything else was not kept by the log."""
    with pytest.raises(ValueError, match=r"normal form|RFC 3339"):
        timestamps.to_ms(text)
