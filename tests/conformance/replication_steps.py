"""The verbs of pages and rows for copies (16), and of sums (20), which are computed here."""

from __future__ import annotations

import hashlib
import json
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from tests.conformance import values
from tests.conformance.listeners import PATIENCE_S
from tests.conformance.scene import Scene
from tests.conformance.steps import REACH_S, step_answer

_PAGE_END = "7fffff"
_SECOND, _ID_PREFIX = 8, 18  # where the second and the page of an event id end
_BUCKETS = 64


@dataclass(frozen=True)
class Copied:
    """The content of a reply: its first line, and each entry with its event id."""

    head: dict[str, Any]
    entries: list[tuple[str, str]]
    size: int

    @property
    def pending(self) -> int:
        return int(self.head["pending"])


def step_pages(scene: Scene, argument: dict[str, Any]) -> None:
    """Request the pages after that of the event `behind`, committed at another `second`, of the
    case's own type unless `query` names others. `entries` are the operations in them with their
    ids, `has` are fields of the feed's line, `as` keeps the reply; a refusal is checked as by
    `answer`.
    """
    scene.answer = httpx.get(_url(scene, argument), timeout=PATIENCE_S * 3)
    if argument.get("status", 200) != 200:
        step_answer(scene, argument)
        return
    assert scene.answer.status_code == 200, scene.answer.text
    _check(scene, _read(scene.answer.text), argument)


def step_awaits_pages(scene: Scene, argument: dict[str, Any]) -> None:
    """Send the request of `pages`, while the following steps run."""
    url = _url(scene, argument)
    scene.names[argument["as"]] = scene.beside(lambda: httpx.get(url, timeout=PATIENCE_S * 3))


def step_pages_come(scene: Scene, argument: dict[str, Any]) -> None:
    """The waiting request gets `entries`, also those posted after it began."""
    _check(scene, _read(scene.names[argument["of"]]().text), argument)


def step_shares(scene: Scene, argument: dict[str, Any]) -> None:
    """`each` share alone: together they have the entries `ids`, each once, and count the rest."""
    found: list[str] = []
    for share in argument["each"]:
        answer = httpx.get(_url(scene, argument | {"query": f"share={share}"}), timeout=PATIENCE_S)
        copied = _read(answer.text)
        assert copied.head["filtered"] >= len(argument["ids"]) - len(copied.entries), copied.head
        found += [id for id, _ in copied.entries]
    assert sorted(found) == sorted(argument["ids"]), found


def step_rows(scene: Scene, argument: dict[str, Any]) -> None:
    """The row of the case's own object `of` is returned with `event` and the id `at`, or `none`."""
    key = f"{scene.token}/{argument['of']}"
    query = f"bucket={zlib.crc32(key.encode()) % _BUCKETS}&{argument.get('query', '')}"
    url = f"{scene.target.stream_url}/feeds/{scene.target.feed}/rows?{query}"
    found: dict[str, tuple[list[Any], str]] = {}
    after: str | None = ""
    while after is not None:
        wanted = httpx.QueryParams({"after": after}) if after else ""
        answer = httpx.get(f"{url}&{wanted}", timeout=PATIENCE_S)
        assert answer.status_code == 200, answer.text
        head, *lines = answer.text.split("\n")
        assert len(lines) == 2 * json.loads(head)["rows"] + 1, head
        for told, line in zip(lines[:-1:2], lines[1::2], strict=True):
            found[json.loads(told)[0]] = (json.loads(told), line)
        after = json.loads(head)["after"]
    _check_row(found.get(key), argument)


def _check_row(row: tuple[list[Any], str] | None, argument: dict[str, Any]) -> None:
    if argument.get("none"):
        assert row is None, row
        return
    assert row is not None, "it is not returned"
    (_, page, slot, at_ms, expires_ms), line = row
    assert json.loads(line)["event"] == argument["event"], line
    assert (expires_ms > 0) == (argument["event"] == "delete"), row
    assert argument["at"] == f"{at_ms // 1000:08x}{page:010x}{slot:06x}", row


def _url(scene: Scene, argument: dict[str, Any]) -> str:
    asked = [f"types={scene.token}"] if "types=" not in argument.get("query", "") else []
    if "behind" in argument:
        second, page = argument["behind"][:_SECOND], argument["behind"][_SECOND:_ID_PREFIX]
        asked.append(f"after={argument.get('second', second)}{page}{_PAGE_END}")
    if "query" in argument:
        asked.append(argument["query"])
    return f"{scene.target.stream_url}/feeds/{scene.target.feed}/pages?{'&'.join(asked)}"


def _read(text: str) -> Copied:
    first, *lines = text.split("\n")
    head = json.loads(first)
    pages = list(_pages(lines))
    assert len(pages) == head["pages"], first
    entries = [entry for page in pages for entry in page]
    return Copied(head, entries, len(text.encode()))


def _pages(lines: list[str]) -> Iterator[list[tuple[str, str]]]:
    at, last = 0, 0
    while at < len(lines) - 1:
        head = json.loads(lines[at])
        assert not last or head["page"] == last + 1, f"page {head['page']} follows {last}"
        last = head["page"]
        slots = head.get("slots", range(head["lines"]))
        assert len(slots) == head["lines"], head
        prefix = f"{head['at'] // 1000:08x}{last:010x}"
        told = lines[at + 1 : at + 1 + head["lines"]]
        yield [(f"{prefix}{slot:06x}", line) for slot, line in zip(slots, told, strict=True)]
        at += 1 + head["lines"]
    assert lines[at:] == [""], "it ends within a page"


def _check(scene: Scene, found: Copied, argument: dict[str, Any]) -> None:
    if "entries" in argument:
        wanted = argument["entries"]
        assert len(found.entries) == len(wanted), found.entries
        for short, (id, line) in zip(wanted, found.entries, strict=True):
            fields = values.operation(dict(short), scene.token)
            assert fields.pop("at") == id, f"{line} is told as {id}"
            told = json.loads(line)
            for name, value in fields.items():
                assert values.matches(value, told.get(name)), line
    for name, value in argument.get("has", {}).items():
        assert values.matches(value, found.head[name]), found.head
    if "bytes_max" in argument:
        assert found.size <= argument["bytes_max"], found.size
    if "as" in argument:
        scene.names[argument["as"]] = found


def step_sums(scene: Scene, argument: dict[str, Any]) -> None:
    """Keep the sums `as`, of `types` or of all, once they are those of the event `behind`."""
    page = int(argument.get("behind", "0" * 24)[8:18], 16)
    types = {"types": argument["types"]} if "types" in argument else {}
    deadline = time.monotonic() + REACH_S
    while True:
        answer = scene.http.get(f"/feeds/{scene.target.feed}/sums", params=types)
        assert answer.status_code == 200, answer.text
        told = answer.json()
        assert told.keys() == {"page", "sums"} and len(told["sums"]) == _BUCKETS, told
        if told["page"] >= page and None not in told["sums"]:
            scene.names[argument["as"]] = [int(each, 16) for each in told["sums"]]
            return
        assert time.monotonic() < deadline, f"no sums of page {page} within {REACH_S} s: {told}"
        time.sleep(0.05)


def step_sums_differ(scene: Scene, argument: dict[str, Any]) -> None:
    """The sums `to` are those `from`, with the objects `added` and `taken` away at their ids."""
    before, after = scene.names[argument["from"]], scene.names[argument["to"]]
    expected = list(before)
    for objects, sign in ((argument["added"], 1), (argument["taken"], -1)):
        for short in objects:
            fields = values.operation({k: v for k, v in short.items() if k != "at"}, scene.token)
            kind = fields["type"].replace("%", "%25").replace("/", "%2F")
            key = f"{kind}/{fields['id']}".encode()
            digest = hashlib.sha256(short["at"][8:].encode() + key).digest()[:8]
            bucket = zlib.crc32(key) % _BUCKETS
            expected[bucket] = (expected[bucket] + sign * int.from_bytes(digest, "big")) % 2**64
    assert after == expected
    assert not (argument.get("zero") and any(after))
