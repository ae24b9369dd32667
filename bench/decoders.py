"""Measure the CPU time per byte of each decoder on a network path, for the worst inputs.

None takes more than ten times the time of an ordinary input of the same decoder. Both are measured
in one process as CPU time of one thread, so that a busy machine changes neither.
"""

from __future__ import annotations

import gzip
import json
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from urllib.parse import parse_qsl

from websockets.frames import Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol

from tidings.core import limits
from tidings.core.archive import segments
from tidings.core.changeagent.changes import change_from
from tidings.core.durable_streams import messages
from tidings.core.errors import InvalidSetting, TidingsError
from tidings.core.model import cursors, filters
from tidings.core.model.feeds import FixedFeeds
from tidings.core.model.json_body import JSON_TYPE, NDJSON_TYPE, lines_from, object_from
from tidings.core.model.pages import Page
from tidings.core.sync import corrections, dumps
from tidings.core.websocket.receive import parse_message
from tidings.http.asgi import join_headers
from tidings.http.request import decompress, quality
from tidings.server.socket_protocol import SLICE_BYTES

from .results import Section
from .waiting import frame, worst_operations

RATIO_MAX = 10.0
_ROUNDS = 5
_NOW_MS = 1_700_000_000_000
_OPERATIONS = [
    {"event": "update", "type": "video", "id": f"x{at}", "parents": ["user/1"], "data": {"a": at}}
    for at in range(1000)
]
_ORDINARY = json.dumps(_OPERATIONS).encode()
_LINES = "\n".join(map(json.dumps, _OPERATIONS)).encode()


def _lines(media_type: str) -> Callable[[bytes], object]:
    return lambda body: lines_from(body, media_type, now_ms=_NOW_MS)


def _query(text: bytes) -> object:
    fields = join_headers(parse_qsl(text.decode(), keep_blank_values=True))
    return filters.from_query(fields)


def _message(text: bytes) -> object:
    return parse_message(text.decode(), FixedFeeds(frozenset({"main"})))


def _frames(data: bytes) -> None:
    """Parse the frames *data* in slices, as the protocol of a WebSocket does."""
    protocol = ServerProtocol(max_size=limits.MESSAGE_BYTES_MAX)
    protocol.state = State.OPEN
    protocol.parser = protocol.parse()
    next(protocol.parser)
    for at in range(0, len(data), SLICE_BYTES):
        protocol.receive_data(data[at : at + SLICE_BYTES])
        protocol.events_received()
        protocol.data_to_send()


def _by_line(decode: Callable[[bytes], object]) -> Callable[[bytes], object]:
    return lambda text: [decode(line) for line in text.splitlines()]


def _decoders() -> Mapping[str, tuple[Callable[[bytes], object], bytes, Mapping[str, bytes]]]:
    """Return each decoder with an ordinary input, and with its worst inputs."""
    operations = worst_operations()
    lists = b"[" + b"[]," * 349_000 + b"1]"
    names = b"{" + b'"":1,' * 12_000 + b'"a":1}'
    packed = gzip.compress(_ORDINARY)
    lines = lines_from(_ORDINARY, JSON_TYPE, now_ms=_NOW_MS)
    _, archived = segments.encode([Page(1, "\n".join(lines), "a", _NOW_MS)])
    dump = "\n".join(json.dumps({"type": "a", "id": f"{at}"}) for at in range(1000)).encode()
    part = b"".join(
        b'{"event":"update","timestamp":"2024-01-01T00:00:00Z","parents":[],"type":"a","id":"%d",'
        b'"at":"0000000001%06x"}\n' % (at, at)
        for at in range(1000)
    )
    values = b"types=" + b",".join(b"type-%d" % at for at in range(90))
    accept = b"text/event-stream, application/json;q=0.9, */*;q=0.1"
    return {
        "gzip": (
            decompress,
            gzip.compress(json.dumps(_OPERATIONS[0]).encode()),  # as most producers send
            {
                "members": gzip.compress(b"") * (limits.GZIP_MEMBERS_MAX - 1),
                "most members": gzip.compress(b"") * 50_000,
                "a bomb": gzip.compress(b" " * 1_000_000),
                "empty blocks": packed[:10] + b"\0\0\0\xff\xff" * 200_000,
            },
        ),
        "JSON": (_lines(JSON_TYPE), _ORDINARY, operations),
        "NDJSON": (_lines(NDJSON_TYPE), _LINES, {"empty": b"\n" * 1_000_000, **operations}),
        "objects": (
            partial(object_from, wrong=InvalidSetting),
            json.dumps({f"name-{at}": [at, "text"] for at in range(1000)}).encode(),
            {"lists": lists, "names": names},
        ),
        "changes": (change_from, _ORDINARY, {"lists": lists, "names": names}),
        "durable streams": (
            lambda body: messages.lines_from("s", JSON_TYPE, body, _NOW_MS),
            _ORDINARY,
            {"lists": lists, "999 of lists": b"[" + (b"[" + b"[]," * 300 + b"1],") * 998 + b"1]"},
        ),
        "corrections": (
            _by_line(corrections.decode),
            part,
            {"lists": lists, "empty": b"\n" * 9999},
        ),
        "dumps": (_by_line(dumps.read_line), dump, {"lists": lists, "empty": b"\n" * 9999}),
        "parts of the archive": (
            segments.decode,
            archived,
            {"lines": gzip.compress(b"\n" * 1_000_000), "cut": gzip.compress(lists)[:-9]},
        ),
        "queries": (
            _query,
            values,
            {
                "fields": b"&a" * (limits.QUERY_FIELDS_MAX - 1),
                "values": b"types=" + b"a," * 31_000,
                "escapes": b"types=" + b"%41" * 20_000,
            },
        ),
        "Accept": (
            lambda text: quality(text.decode(), "text/event-stream"),
            accept,
            {
                "ranges": b"a," * 31_000,
                "weights": b"a;q=1" * 12_000,
                "spaces": b";" + b" " * 60_000,
            },
        ),
        "cursors": (
            lambda text: cursors.parse_cursor(text.decode()),
            b"6b0b9a6c00000000010003e7",
            {"digits": b"9" * 60_000, "hex": b"f" * 60_000},
        ),
        "messages of WebSockets": (
            _message,
            b'{"action":"subscribe","types":["video","user"],"feed":"main"}',
            {
                "lists": b'{"action":"subscribe","types":[' + b"[]," * 10_000 + b"1]}",
                "values": b'{"action":"subscribe","ids":[' + b'"a",' * 8000 + b'"a"]}',
            },
        ),
        "frames of WebSockets": (
            _frames,
            frame(0x80 | Opcode.TEXT, b"a" * 40) * 100,
            {"pings": frame(0x80 | Opcode.PING) * 1000, "long": frame(0x81, b"a" * 32_000)},
        ),
    }


def _ns_per_byte(decode: Callable[[bytes], object], given: bytes) -> float:
    best_s = float("inf")
    for _ in range(_ROUNDS):
        began_s = time.thread_time()
        with suppress(TidingsError, ValueError):
            decode(given)
        best_s = min(best_s, time.thread_time() - began_s)
    return best_s * 1e9 / _size(given)


def _size(given: bytes) -> int:
    """Return the size of *given*; if it is gzip, the larger of its sizes before and after."""
    if not given.startswith(b"\x1f\x8b"):
        return len(given)
    unpacked = zlib.decompressobj(wbits=31).decompress(given, limits.REQUEST_BYTES_MAX)
    return max(len(given), len(unpacked))


def measure() -> Section:
    rows: list[tuple[str, str]] = []
    worst = 0.0
    for name, (decode, ordinary, inputs) in _decoders().items():
        usual = _ns_per_byte(decode, ordinary)
        rows.append((f"{name}, ordinary", f"{usual:.1f} ns a byte"))
        for kind, given in inputs.items():
            ratio = _ns_per_byte(decode, given) / usual
            worst = max(worst, ratio)
            rows.append((f"{name}: {kind}", f"{ratio * usual:.1f} ns a byte, {ratio:.2f} times"))
    target = f"at most {RATIO_MAX:.0f} times the CPU of an ordinary input, by byte"
    return Section("The worst input of each decoder", target, rows, worst <= RATIO_MAX)
