"""
Bad cursors, filters and messages: refused with a code and a rule, or given a meaning.

Streams and WebSockets share the parsers, so what is refused here is refused on every transport.
"""

from __future__ import annotations

import pytest
from tidings.core.errors import Rejected
from tidings.core.model import cursors, filters, operations
from tidings.core.model.cursors import Now, Place, Replication, Since
from tidings.core.model.pages import Page

from tests.core.scene import FEED, NOW, Scene, line, op

CURSORS_REFUSED = [
    "abcd",
    "0" * 14,
    "0" * 23,
    "0" * 25,
    "+1234567890123",
    " 1",
    "1 ",
    "1_0",
    "1e3",
    "0x10",
    "\u0663",
    "\u0660" * 24,
    "g" * 24,
    "Now",
    "\0",
    "1\n",
    "x" * 1_000_000,
]


@pytest.mark.parametrize("text", CURSORS_REFUSED, ids=lambda text: repr(text[:26]))
def test_O36_bad_cursors(scene: Scene, text: str) -> None:
    """Refused with 400, on a stream and on a WebSocket; the connection stays as it was."""
    with pytest.raises(Rejected) as error:
        scene.streamer.open(FEED, text)
    assert (error.value.status, error.value.code) == (400, "invalid_cursor")
    assert error.value.rule == "must be 24 hex digits, at most 13 decimal digits, or 'now'"

    scene.connect()
    before = scene.connection("c")
    scene.say("c", action="resume", cursor=text)
    assert "error" in scene.heard("c")[0]
    assert scene.connection("c") == before


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("", Now()),
        ("now", Now()),
        ("+5", Since(5)),
        ("-5", Since(-5)),
        ("-0", Since(0)),
        ("0000000000000", Since(0)),
        ("9999999999999", Since(0xFFFFFFFF * 1000)),
        ("F" * 24, Place(2**40 - 1, 0x7FFFFF, 2**32 - 1)),
        (f"{5:08x}{7:010x}{0x800000 | 64:06x}", Replication(5, 7, 64, False)),
        (f"{5:08x}{7:010x}{0x800000 | 65:06x}", Place(7, 65, 5)),
        (f"{5:08x}{2**40 - 1:010x}{0xC00000:06x}", Replication(5, 2**40 - 1, 0, True)),
    ],
)
def test_forged_cursors(text: str, meant: object) -> None:
    """What can be read has one meaning."""
    assert cursors.parse(text) == meant


FORGED = [
    "f" * 24,
    "0" * 24,
    "F" * 18 + "7fffff",
    "0" * 18 + "800000",
    "0" * 18 + "ffffff",
    f"{NOW // 1000:08x}{2**40 - 1:010x}000000",
    f"{NOW // 1000:08x}{2**40 - 1:010x}800000",
    f"{NOW // 1000:08x}{2**40 - 1:010x}c00040",
    f"{NOW // 1000:08x}{1:010x}7ffffe",
    f"{NOW // 1000:08x}{1:010x}00ffff",
    f"{2**32 - 1:08x}{1:010x}800000",
    f"{2**32 - 1:08x}{0:010x}c0003f",
    "545b55c7f095528dd0f3863c",
    "9" * 13,
    "1",
]


@pytest.mark.parametrize("text", FORGED)
def test_forged_cursors_get_data(scene: Scene, text: str) -> None:
    """Whatever a client makes up: the stream comes to its frontier, and what follows arrives."""
    scene.post(op("a"))
    scene.project()
    stream = scene.streamer.open(FEED, text)
    for _ in range(200):
        if stream.next().at_frontier:
            break
    else:
        raise AssertionError("never reaches the frontier")

    scene.post(op("new"))
    assert '"id":"new"' in stream.next().text
    assert cursors.parse(stream.progress.cursor)


@pytest.mark.parametrize(
    ("types", "parents"),
    [
        (",".join(f"t{number}" for number in range(101)), None),
        (None, "p" * 641),
        ("\0", None),
        ("\ud800", None),
        (None, "a,\udfff"),
    ],
)
def test_bad_filters(scene: Scene, types: str | None, parents: str | None) -> None:
    """Refused with 400 before anything is streamed."""
    with pytest.raises(Rejected) as error:
        scene.streamer.open(FEED, "", {"types": types, "parents": parents})
    assert (error.value.status, error.value.code) == (400, "invalid_filter")


@pytest.mark.parametrize("types", [",", "unknown", "Video", "video ", "video\n", "*", "t/video"])
def test_filters_that_match_nothing(types: str) -> None:
    """They are legal: nothing matches them."""
    page = Page(1, line(), "", NOW)
    wanted = filters.parse(types, None)

    assert not any(wanted.matches(found) for found in operations_of(page))


def operations_of(page: Page) -> list[operations.Operation]:
    return [operations.parse_line(each) for each in page.lines]


MESSAGES = [
    ("", "invalid_message", "message: must be JSON"),
    ("hello", "invalid_message", "message: must be JSON"),
    ("[]", "invalid_message", "message: must be a JSON object"),
    ("[" * 10_000, "invalid_message", "message: nested deeper than 32"),
    ('"' + '\\"' * 16_000, "invalid_message", "message: must be JSON"),
    ("{}", "invalid_message", "action: must be one of"),
    ('{"action":{"a":1}}', "invalid_message", "action: must be one of"),
    ('{"action":"ping"}' + " " * 32_768, "too_large", "message: holds at most 32768 bytes"),
    ('{"action":"subscribe","feed":[]}', "invalid_message", "feed: must be a string"),
    ('{"action":"subscribe","feed":"x\\u0000"}', "invalid_feed", "feed: must be 1 to 63"),
    ('{"action":"subscribe","types":["\\ud800"]}', "invalid_filter", "types: must be at most"),
    ('{"action":"subscribe","parents":[null]}', "invalid_message", "parents: must be an array"),
    ('{"action":"subscribe","from":1e999}', "invalid_message", "from: must be a string"),
    ('{"action":"resume"}', "invalid_cursor", "cursor: is required to resume"),
    ('{"action":"resume","cursor":"\\ud800"}', "invalid_cursor", "cursor: must be 24 hex"),
]


@pytest.mark.parametrize(("text", "code", "says"), MESSAGES, ids=lambda each: repr(each[:40]))
def test_bad_messages(scene: Scene, text: str, code: str, says: str) -> None:
    """Told to the client in one message; the connection stays open and unchanged."""
    scene.connect()
    before = scene.connection("c")
    scene.receiver.receive("c", text)

    (answer,) = scene.heard("c")
    assert answer["error"]["code"] == code
    assert answer["error"]["message"].startswith(says)
    assert len(scene.sockets.sent["c"][0]) < 2000
    assert scene.connection("c") == before
    assert scene.sockets.closed == []
    assert scene.waker.woken == [] and scene.waker.replays == []
