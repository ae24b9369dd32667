"""The promises of docs/PROTOCOL.md, checked against what was sent and acknowledged."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from tests.oracle.consumers import CHANGE, Lister, Position, Reader, Worker
from tests.oracle.history import History, Sent

BUCKETS = 64


@dataclass(frozen=True)
class Entry:
    """An operation in the log."""

    place: Position
    seconds: int
    data: dict[str, Any]

    @property
    def id(self) -> str:
        return f"{self.seconds:08x}{self.place[0]:010x}{self.place[1]:06x}"

    @property
    def key(self) -> str:
        kind = self.data["type"].replace("%", "%25").replace("/", "%2F")
        return f"{kind}/{self.data['id']}"

    @property
    def number(self) -> int:
        number: int = self.data["data"]["n"]
        return number


def read_log(url: str) -> list[Entry]:
    """Return the whole log (16.3)."""
    entries: list[Entry] = []
    after = ""
    while True:
        query = {"after": after} if after else {}
        answer = httpx.get(f"{url}/feeds/main/pages", params=query, timeout=60)
        answer.raise_for_status()
        lines = iter(answer.text.splitlines())
        head = json.loads(next(lines))
        for _ in range(head["pages"]):
            page = json.loads(next(lines))
            seconds = page["at"] // 1000
            for slot in page.get("slots") or range(page["lines"]):
                entries.append(Entry((page["page"], slot), seconds, json.loads(next(lines))))
            after = f"{seconds:08x}{page['page']:010x}7fffff"
        if not head["pages"]:
            return entries


def check_acknowledged(log: Sequence[Entry], history: History) -> None:
    """2.1, 4.3, 4.5: acknowledged operations are there, once, whole and with their ids."""
    places: dict[int, list[Entry]] = {}
    for entry in log:
        places.setdefault(entry.number, []).append(entry)
    for sent in history.requests:
        found = [places.pop(number, []) for number in sent.numbers]
        for promise in _broken(sent, found):
            history.violated(f"{promise}: {sent}, {found}")
    if places:
        history.violated(f"operations that were never sent: {sorted(places)[:10]}")


def _broken(sent: Sent, found: Sequence[Sequence[Entry]]) -> Iterator[str]:
    there = [each[0] for each in found if each]
    if any(len(each) > 1 for each in found):
        yield "4.5 appended twice"
    if there and (len(there) < len(found) or len({each.place[0] for each in there}) > 1):
        yield "4.3 a request in parts"
    if [each.place for each in there] != sorted(each.place for each in there):
        yield "4.3 a request out of order"
    if sent.is_acked and not there and not sent.may_be_lost:
        yield "2.1 acknowledged and missing"
    if sent.ids and there and [each.id for each in there] != list(sent.ids):
        yield "4.4 other ids"


def check_order(log: Sequence[Entry], history: History) -> None:
    """2.2: a request that was sent after another one was acknowledged comes after it in the log."""
    pages = {entry.number: entry.place[0] for entry in log}
    known = [
        (each, pages[each.numbers[0]])
        for each in history.requests
        if each.is_acked and each.numbers[0] in pages and not each.may_be_lost
    ]
    events = sorted(
        [(each.sent_s, 1, page) for each, page in known]
        + [(each.acked_s or 0.0, 0, page) for each, page in known]
    )
    highest = 0
    for _, is_sent, page in events:
        if not is_sent:
            highest = max(highest, page)
        elif page <= highest:
            history.violated(f"2.2 page {page} was sent after page {highest} was acknowledged")


def fold(log: Sequence[Entry]) -> dict[str, Entry]:
    """Return the latest operation of each object that exists (2.6)."""
    held = {entry.key: entry for entry in log if entry.data["type"] != CHANGE}
    return {key: entry for key, entry in held.items() if entry.data["event"] != "delete"}


def check_state(url: str, log: Sequence[Entry], history: History) -> None:
    """2.6, 13.9, 20: the state is the fold of the log, and so are its checksums."""
    wanted = fold(log)
    found = {f"{each['type']}/{each['id']}": each["data"] for each in _objects(url)}
    if found != {key: entry.data["data"] for key, entry in wanted.items()}:
        differing = {key for key in found.keys() ^ wanted.keys()}
        history.violated(f"2.6 the state is not the fold of the log: {sorted(differing)[:10]}")
    sums = [0] * BUCKETS
    for key, entry in wanted.items():
        place = f"{entry.place[0]:010x}{entry.place[1]:06x}"
        digest = hashlib.sha256(f"{place}{key}".encode()).digest()[:8]
        sums[zlib.crc32(key.encode()) % BUCKETS] += int.from_bytes(digest)
    told = httpx.get(f"{url}/feeds/main/sums", timeout=60).json()["sums"]
    right = [f"{each % 2**64:016x}" for each in sums]
    if any(given not in (None, wanted_sum) for given, wanted_sum in zip(told, right, strict=True)):
        history.violated("20.3 the checksums are not those of the log")


def check_reader(reader: Reader, log: Sequence[Entry], history: History) -> None:
    """2.1 to 2.4: it has everything after its copy, in order, and the right objects."""
    matching = [entry for entry in log if not reader.types or entry.data["type"] in reader.types]
    places = [entry.place for entry in matching]
    if isinstance(reader, Worker):
        missing = {entry.number for entry in log} - reader.taken
        if missing:
            history.violated(f"14 the named consumer never got {sorted(missing)[:10]}")
        return
    if reader.entries != places[len(places) - len(reader.entries) :]:
        missing_places = sorted(set(places) - set(reader.entries))[-10:]
        history.violated(f"2.3 {reader.name} {reader.types}: not the log; lacks {missing_places}")
    if isinstance(reader, Lister):
        if reader.entries != places:
            history.violated("12.6 the lists are not the log")
        return
    wanted = {key: entry.data["data"] for key, entry in fold(matching).items()}
    if reader.held != wanted:
        differing = sorted(
            key for key in reader.held.keys() | wanted if reader.held.get(key) != wanted.get(key)
        )
        history.violated(f"2.4 {reader.name} {reader.types} holds other objects: {differing[:10]}")


def _objects(url: str) -> Iterator[dict[str, Any]]:
    after = ""
    while after is not None:
        query = f"?after={quote(after)}" if after else ""
        answer = httpx.get(f"{url}/feeds/main/objects{query}", timeout=60).json()
        yield from answer["objects"]
        after = answer["next"]
