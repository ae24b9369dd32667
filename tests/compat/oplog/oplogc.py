"""A consumer as strict as oplogc, and a command like oplog-tail around it.

oplogc itself is a Go module that is not part of this repository's tests. This one replaces it: it
takes exactly what oplogc took, keeps its position as oplogc did, its weaknesses included, and
fails wherever oplogc would have stopped, hung or tried for ever.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

SILENCE_S = 30.0  # oplogc waits for ever; a test does not
SAVE_EVERY_S = 1.0
_STATE = re.compile(r"(?:[0-9]{0,13}|[0-9a-f]{24})", re.ASCII)
_TIMESTAMP = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})"
)
_TEXTS = ("type", "id", "ref")


class AccessDenied(Exception):
    """401 or 403."""


class InvalidEvent(Exception):
    """A block that oplogc cannot take: it would disconnect and meet it again, for ever."""


class InvalidState(Exception):
    """A state file on which oplogc hangs at its start."""


class Disconnected(Exception):
    """The stream ended or broke: oplogc connects again."""


@dataclass(frozen=True, slots=True)
class Event:
    id: str
    name: str
    data: dict[str, Any]


class Decoder:
    """Lines of a stream to events. Only LF ends a line; a comment is ignored anywhere."""

    def __init__(self) -> None:
        self._id = ""  # an event without one has the last one's
        self._fields: dict[str, str] = {}

    def line(self, line: bytes) -> Event | None:
        """The event that *line*, without its LF, completes.

        Raises:
            InvalidEvent: the block is not an event.
        """
        if line:
            self._field(line.decode())
            return None
        if not self._fields:
            return None
        fields, self._fields = self._fields, {}
        self._id = fields.get("id", self._id)
        if "event" not in fields:
            raise InvalidEvent(f"a block without an event: {fields}")
        return Event(self._id, fields["event"], self._data(fields))

    def _field(self, line: str) -> None:
        name, _, value = line.partition(":")
        if not name:
            return
        if name == "data" and name in self._fields:
            raise InvalidEvent("data on more than one line")
        self._fields[name] = value.removeprefix(" ")

    @staticmethod
    def _data(fields: dict[str, str]) -> dict[str, Any]:
        if fields["event"] in ("reset", "live"):
            return {}
        try:
            data = json.loads(fields["data"])
        except (KeyError, ValueError):
            raise InvalidEvent(f"no data that is JSON: {fields}") from None
        if not isinstance(data, dict) or not _TIMESTAMP.fullmatch(str(data.get("timestamp"))):
            raise InvalidEvent(f"no operation: {data}")
        parents = data.get("parents") or []
        if not all(isinstance(text, str) for text in [*parents, *map(data.get, _TEXTS[:2])]):
            raise InvalidEvent(f"of the wrong types: {data}")
        return data


@dataclass(slots=True)
class InFlight:
    """Ids in the order they came, each once; only the oldest one's end moves *last_id*."""

    last_id: str
    ids: list[str] = field(default_factory=list)

    def push(self, event_id: str) -> None:
        if event_id not in self.ids:
            self.ids.append(event_id)

    def done(self, event_id: str) -> None:
        if self.ids and self.ids[0] == event_id:
            self.last_id = event_id
        if event_id in self.ids:
            self.ids.remove(event_id)


class Consumer:
    """Follows the feed at *url*; `done` acknowledges the events that it returned."""

    def __init__(
        self,
        url: str,
        *,
        password: str = "",
        state_file: Path | None = None,
        allow_replication: bool = False,
        types: str = "",
        parents: str = "",
    ) -> None:
        filters = {"parents": parents, "types": types}
        query = "&".join(f"{name}={value}" for name, value in filters.items() if value)
        self._url = f"{url}?{query}" if query else url
        self._password = password
        self._state_file = state_file
        self._flight = InFlight(self._load(allow_replication))
        self._saved: str | None = None
        self._unacked_reset = False

    @property
    def last_id(self) -> str:
        return self._flight.last_id

    def done(self, event: Event) -> None:
        self._flight.done(event.id)
        if event.name == "reset":
            self._unacked_reset = False

    def save(self) -> None:
        if self._state_file and self._saved != self.last_id:
            self._saved = self.last_id
            self._state_file.write_text(self._saved)

    def connection(self) -> Iterator[Event]:
        """The events of one connection.

        Raises:
            Disconnected, AccessDenied, InvalidEvent: it is over.
        """
        decoder = Decoder()
        for line in self._lines():
            event = decoder.line(line)
            if event is None:
                continue
            assert not self._unacked_reset, "oplogc reads nothing before a reset is acknowledged"
            self._unacked_reset = event.name == "reset"
            self._flight.push(event.id)
            yield event

    def follow(self) -> Iterator[Event]:
        """Follow for ever, as oplogc: 1, 2, 4 ... 32 seconds between attempts, 1 after an event."""
        delay_s = 1.0
        while True:
            try:
                for event in self.connection():
                    delay_s = 1.0
                    yield event
            except Disconnected as error:
                print(f"{error}; again in {delay_s} s", file=sys.stderr, flush=True)  # noqa: T201
                time.sleep(delay_s)
                delay_s = min(32.0, 2 * delay_s)

    def _load(self, allow_replication: bool) -> str:
        if self._state_file is None:
            return ""
        if not self._state_file.exists():
            return "0" if allow_replication else ""
        text = self._state_file.read_text()
        if not _STATE.fullmatch(text):
            raise InvalidState(repr(text))
        return text

    def _lines(self) -> Iterator[bytes]:
        parts = urlsplit(self._url)
        connection = HTTPConnection(parts.netloc, timeout=SILENCE_S)
        try:
            connection.request("GET", f"{parts.path or '/'}?{parts.query}", headers=self._headers())
            answer = connection.getresponse()
            if answer.status in (401, 403):
                raise AccessDenied("invalid credentials")
            if answer.status != 200:
                raise Disconnected(f"HTTP error {answer.status}")
            yield from _complete_lines(answer)
        except (OSError, HTTPException) as error:
            raise Disconnected(str(error)) from None
        finally:
            connection.close()
        raise Disconnected("the stream ended")

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-cache"}
        headers["Accept-Encoding"] = "gzip"  # Go's client asks for it by itself
        if self.last_id:
            headers["Last-Event-ID"] = self.last_id
        if self._password:
            secret = base64.b64encode(f":{self._password}".encode()).decode()
            headers["Authorization"] = f"Basic {secret}"
        return headers


def _complete_lines(answer: IO[bytes] | Any) -> Iterator[bytes]:
    while (line := answer.readline()).endswith(b"\n"):
        yield line[:-1]


def main() -> int:
    """Prints what comes, as oplog-tail; acknowledges it; saves once a second."""
    parser = argparse.ArgumentParser()
    for option in ("--password", "--types", "--parents"):
        parser.add_argument(option, default="")
    parser.add_argument("--state-file", type=Path)
    parser.add_argument("--allow-replication", action="store_true")
    parser.add_argument("url")
    consumer = Consumer(**vars(parser.parse_args()))
    threading.Thread(target=_save_often, args=[consumer], daemon=True).start()
    try:
        for event in consumer.follow():
            named = f"{event.data['type']}/{event.data['id']}" if event.data else ""
            mark = event.name if event.data else f"** {event.name}"
            print(mark, named, event.id, flush=True)  # noqa: T201
            consumer.done(event)
    except (AccessDenied, InvalidEvent) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _save_often(consumer: Consumer) -> None:
    while True:
        consumer.save()
        time.sleep(SAVE_EVERY_S)


if __name__ == "__main__":
    sys.exit(main())
