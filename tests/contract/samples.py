"""Records of each kind with a value in every field."""

from __future__ import annotations

from typing import Any

from tidings.core.auth.guard import Role
from tidings.core.auth.keys import Key, digest_of
from tidings.core.consumers.consumer import Consumer, Failure, Parked
from tidings.core.consumers.position import Span
from tidings.core.durable_streams.stream import Producer, Stream
from tidings.core.erasure.records import Erasure, Phase
from tidings.core.feeds.records import TABLES_DROPPED, TABLES_PENDING, FeedRecord, Removal
from tidings.core.model.cursors import Place
from tidings.core.model.filters import FIELDS, Filter, of
from tidings.core.replication.relay import Copy, Counts, Relay, RelayStatus, Wanted
from tidings.core.replication.source import Role as RelayRole
from tidings.core.settings.documents import SETTINGS, Setting
from tidings.core.settings.profiles import Profile
from tidings.core.settings.values import Ended, Resource

AT = 4_102_444_800_000  # in 2100: an engine deletes what has expired while a test looks

PLACE = Place(7, 2, AT // 1000)

PARKED = Parked(PLACE.encode(), '{"event":"update","type":"\u00e4"}', "too long", AT, 3)


def consumer_of(feed: str) -> Consumer:
    return Consumer(
        feed,
        "index",
        of(dict.fromkeys(FIELDS, ("video",)) | {"parents": ()}),
        position=PLACE,
        acked=(Span(8, 0, 3), Span(9, 1, 1)),
        sent=Place(9, 4, 5),
        single=Place(9, 3, 5),
        retries=(PLACE.encode(),),
        parked=1,
        failure=Failure("", "it broke", AT, 2),
        paused=True,
        owner="host",
        fence=4,
        until_ms=AT,
        written=6,
    )


ERASURE = Erasure(
    Place(2**33, 3, AT // 1000).encode(),
    "video",
    "a/ä€𝄞 b",
    "key 3k2m9c0q8xw1",
    'a request of "Ann"',
    AT,
    before=Place(7, 2, 5).encode(),
    as_parent=True,
    phase=Phase.ARCHIVE,
    page=2**32,
    through=2**33 + 1,
    until_ms=AT + 1,
    entries=1000,
    pages=12,
    parts=3,
    parked=2,
    texts=8,
    corrected=5,
    settled_ms=AT + 3,
    done_ms=AT + 2,
    final=True,
)

ERASURE_2 = Erasure(Place(9, 0, AT // 1000 + 5).encode(), "video", "x", "ann", "a test", AT)

REMOVAL = Removal(3, 1_763, "1:log/4", 1, (("log", 7), ("state", 2)), TABLES_PENDING, 1_799)


def feed_record(name: str) -> FeedRecord:
    """Return a record of *name* with every field."""
    done = Removal(2, 5, passes=2, tables=TABLES_DROPPED, done_ms=6)
    return FeedRecord(name, 3, False, 1_760, 1_763, "key 1", 2**39, (done, REMOVAL))


KEY = Key(
    "3k2m9c0q8xw1",
    digest_of("s" * 32),
    frozenset({Role.READ, Role.INGEST}),
    Filter(frozenset({"video"}), frozenset({"user/42", "ä"})),
    expires_ms=4_102_444_800_000,
    rate=5,
    streams=7,
    label="the phone of Ann",
    made_ms=4_102_444_700_000,
    made_by="bob",
    revoked_ms=4_102_444_750_000,
    successor="abcabcabcabc",
    feeds=("team-a-", "x"),
)

KEY_2 = Key("000000000000", digest_of("t" * 32), frozenset({Role.ADMIN}))

RESOURCES = (Resource("vm", ("nic", "ä"), "/vms"), Resource("network", (), "/networks?a=b"))

SAMPLES = {"string": "http://api/ä", "integer": 28_800, "array": RESOURCES}


def sample(setting: Setting) -> Any:
    kind = setting.schema["type"]
    return not getattr(Profile(), setting.field) if kind == "boolean" else SAMPLES[kind]


PROFILE = Profile(
    read_passwords=("new", "old"),
    ingest_passwords=("other",),
    ended=(Ended("3k2m9c0q8xw1", 1), Ended("abcabcabcabc", 2, 3)),
    lost=((3, 9), (12, 1_000_000_000_000)),
    closed=True,
    **{each.field: sample(each) for each in SETTINGS.values()},
)


def relay_of(feed: str) -> Relay:
    """Return a relay without a default value in any field."""
    return Relay(
        feed,
        id="0" * 31 + "1",
        wanted=Wanted.PAUSE,
        condition=RelayStatus.COPYING,
        owner="somebody",
        lease_until_ms=AT,
        checkpoint=7,
        seconds=AT // 1000,
        low_watermark=3,
        copy=Copy(9, 5, 2, empty=True, after="video/x"),
        via=("a", "b"),
        upstream="https://one.example/feeds/main",
        master="https://two.example/feeds/main",
        role=RelayRole.FOLLOWER,
        term=4,
        failures=2,
        attempt_ms=AT + 1,
        error="it broke \u00e4",
        counts=Counts(1, 2, 3, 4),
        upstream_read_ms=AT + 2,
        master_read_ms=AT + 3,
        upstream_head=8,
        upstream_ended=True,
        page_at_ms=AT + 4,
        transitions=5,
        changed_ms=AT + 5,
        why="a test",
        compared_ms=AT + 6,
        compared_page=6,
        mended=7,
        counted=8,
        lost=((3, 9), (20, 30)),
    )


BEGINS = Place(3, 0x7FFFFF, 1_700_000_000)

STREAM_2 = Stream("log", "text/plain", BEGINS, BEGINS)

STREAM = Stream(
    "a/ä€𝄞 b",
    "application/json; charset=utf-8",
    BEGINS,
    Place(2**40 - 1, 999, 1_700_000_009),
    closed=True,
    seq="09",
    producers=(Producer("one", 0, 2**53 - 1), Producer("ü", 7, 0)),
)
