"""The parsers of foreign bytes, each as a function that may refuse them and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.unit.core.model import agreement
from tidings.core.archive import segments
from tidings.core.auth import guard, keys
from tidings.core.changeagent import changes, config, users, webhooks
from tidings.core.changeagent import list as listing
from tidings.core.errors import BrokenBatch, BrokenPart, Rejected
from tidings.core.ingest import table_capture
from tidings.core.model import cursors, filters, json_body
from tidings.core.model.feeds import FixedFeeds
from tidings.core.replication import source, wire
from tidings.core.settings import values
from tidings.core.sync import dumps
from tidings.core.triton import registration
from tidings.core.triton.registration import Listener
from tidings.core.websocket import receive

Parser = Callable[[bytes], object]
REFUSALS = (Rejected, BrokenPart, BrokenBatch)

_FEEDS = FixedFeeds(frozenset({"main"}))
_VM = {"vm": values.Resource("vm", ("nic",), "/vms")}


def _text(data: bytes) -> str:
    """Lone surrogates too: JSON brings them."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _json(data: bytes) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return _text(data)


def _filter(data: bytes) -> object:
    types, _, parents = _text(data).partition("&")
    return filters.parse(types, parents)


def _query(data: bytes) -> object:
    pairs = [part.partition("=") for part in _text(data).split("&")]
    return listing.parse({name: [value] for name, _, value in pairs})


def _duration(data: bytes) -> object:
    """Parse a duration; the caller names the field, and refusals have Go's words."""
    try:
        return config.parse_duration(_text(data))
    except ValueError as error:
        raise Rejected(str(error)) from None


PARSERS: dict[str, Parser] = {
    "json": lambda data: agreement.lines_from(data, json_body.JSON_TYPE, now_ms=0),
    "ndjson": lambda data: agreement.lines_from(data, json_body.NDJSON_TYPE, now_ms=0),
    "change": changes.change_from,
    "cursor": lambda data: cursors.parse(_text(data)),
    "filter": _filter,
    "listing": _query,
    "share": lambda data: source.parse_share(_text(data)),
    "message": lambda data: receive.parse_message(_text(data), _FEEDS),
    "registration": lambda data: registration.parse(_text(data), Listener(2, "main"), _VM),
    "batch": lambda data: wire.decode_batch(_text(data)),
    "rows": lambda data: wire.decode_rows(_text(data)),
    "archive": segments.decode,
    "archived": lambda data: list(segments.pages_of(_text(data))),
    "dump": dumps.read_line,
    "users": lambda data: users.users_from(_text(data)),
    "authorization": lambda data: guard.credential_from(_text(data)),
    "key": lambda data: keys.parse(_text(data)),
    "duration": _duration,
    "hooks": lambda data: webhooks.hooks_from(_json(data)),
    "capture": lambda data: table_capture.parse(_text(data)),
    "resource": lambda data: values.parse(_text(data), "main"),
    "configuration": lambda data: config.replace_configuration(config.Configuration(), _json(data)),
}

# The first inputs of each parser: bytes that are read to their end.
SEEDS: dict[str, tuple[bytes, ...]] = {
    "json": (b'{"event":"update","type":"video","id":"x","parents":["a/b"],"data":{"a":[1e3]}}',),
    "ndjson": (
        b'{"event":"insert","type":"a","id":"1"}\n\n{"event":"delete","type":"a","id":"1"}',
    ),
    "change": (b'{"tags":["a"],"data":{"b":1}}', b"[1]"),
    "cursor": (b"545b55c7f095528dd0f3863c", b"now", b"-0", b"00000000000000000a800000"),
    "filter": (b"video,user&user/ann",),
    "listing": (b"since=1&limit=10&block=2&tag=a&strict=true",),
    "share": (b"mod:4:0+1", b"range:00000000-7fffffff"),
    "message": (b'{"action":"subscribe","types":["a"],"from":"0","password":"p","leave":true}',),
    "registration": (b'{"instance":"i","resources":[{"resource":"vm","subResources":["nic"]}]}',),
    "users": (b"# a\nann:$2y$05$" + b"a" * 53 + b"\n",),
    "authorization": (b"Basic OnNlY3JldA==", b"Bearer tdk_000000000000_" + b"A" * 32),
    "key": (b"tdk_000000000000_" + b"A" * 32,),
    "duration": (b"1h30m", b"300ms"),
    "hooks": (b'[{"uri":"https://a/b","headers":{"x":"y"}}]',),
    "capture": (b'{"type":"video","id":"{{id}}","parents":["user/{{owner}}"]}',),
    "resource": (b"vm:nic,alias=/vms",),
    "configuration": (b'{"minPurgeRecords":1,"minPurgeDuration":"1h"}',),
    "dump": (b'{"type":"video","id":"x","timestamp":"2026-01-01T00:00:00Z"}', b'{"tidings":{}}'),
}


def read(name: str, data: bytes) -> bool:
    """Return True if the parser *name* takes *data*; anything but a refusal is raised."""
    try:
        PARSERS[name](data)
    except REFUSALS:
        return False
    return True
