"""Convert messages of brokers to operations, by the envelope of the topic or queue."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from tidings.core.errors import InvalidOperation, TooLarge
from tidings.core.model.envelopes import CLOUDEVENTS, DEBEZIUM, TIDINGS
from tidings.core.model.operations import EVENTS, line_from
from tidings.pipelines.errors import WrongPipeline
from tidings.pipelines.sources.documents import Documents, joined, plain

PLAIN = "plain"
_OURS = f"{TIDINGS}."  # prefix of the types of Tidings' own CloudEvents
_MONGODB = "mongodb"  # a connector with rows and ids as text
_INSERTED, _DELETED, _TOLD, _TRUNCATED = ("c", "r"), "d", "m", "t"

Fields = dict[str, Any]
Message = TypeVar("Message")
# Converts the key and value of a message to operations.
Read = Callable[[bytes | None, bytes | None], Iterable[Fields]]


class Messages:
    """
    A converter of messages to operations. *envelope* is one of:

    - `plain`: objects of *type* with the field *key* as their id. A message without a value deletes
      the object of its key. Without a *type*, messages are operations as they are posted;
    - `tidings`, `cloudevents`, `debezium`: the formats that Tidings writes. Other CloudEvents, in
      structured JSON, are objects of *type*; their id is *key*, or else the subject. Change events
      of Debezium's connectors are rows of *type*, or of their table; their id is the key of the
      message, or else *key*;
    - a function that converts the key and value of a message to operations.

    Raises:
        WrongPipeline: the envelope is unknown.
    """

    def __init__(self, envelope: str | Read, type: str, key: str) -> None:
        self._documents, self._type, self._key = Documents(type, key), type, key
        if callable(envelope):
            self._read = envelope
            return
        known: Mapping[str, Read] = {
            PLAIN: self._plain,
            TIDINGS: self._ours,
            CLOUDEVENTS: self._cloudevent,
            DEBEZIUM: self._debezium,
        }
        if envelope not in known:
            rule = f"envelope must be a function or one of {', '.join(known)}"
            raise WrongPipeline(f"{rule}, not {envelope!r}")
        self._read = known[envelope]

    def operations(self, place: str, key: bytes | None, value: bytes | None) -> list[Fields]:
        """
        Return the operations of the message at *place*; an empty list if a feed has no use for it.

        Raises:
            WrongPipeline: it cannot be read, or a feed would reject it.
        """
        try:
            operations = list(self._read(key, value))
            for each in operations:
                line_from(each, now_ms=0)
        except (WrongPipeline, InvalidOperation, TooLarge) as error:
            raise WrongPipeline(f"{place}: {error}") from None
        except Exception as error:  # noqa: BLE001 bad bytes, or the author's function, may raise anything
            raise WrongPipeline(f"{place}: {type(error).__name__}: {error}") from None
        return operations

    def _plain(self, key: bytes | None, value: bytes | None) -> list[Fields]:
        if value is not None:
            return [self._documents.operation(_object(value))]
        return [self._gone(key.decode())] if self._type and key else []

    def _ours(self, key: bytes | None, value: bytes | None) -> list[Fields]:
        message = _object(value)
        return _told(message["op"], {**message["data"], "type": message["namespace"]})

    def _cloudevent(self, key: bytes | None, value: bytes | None) -> list[Fields]:
        event = _object(value)
        if event["type"].startswith(_OURS):
            return _told(event["type"].removeprefix(_OURS), event.get("data", {}))
        if not self._type:
            raise WrongPipeline(f"a CloudEvent {event['type']!r} is an object of no type: give one")
        data = event["data"]
        named = {self._key: event.get("subject"), **data}
        return [self._documents.operation(named) | {"data": plain(data)}]

    def _debezium(self, key: bytes | None, value: bytes | None) -> list[Fields]:
        if value is None:
            return []  # a tombstone after a deletion, for compaction
        event = _payload(json.loads(value))
        if "op" not in event:
            raise WrongPipeline(f"no change event of Debezium: {sorted(event)}")
        source, op = event["source"], event["op"]
        if source.get("connector") == TIDINGS:
            return _told(source["event"], event["after"] or event["before"] or {})
        if op == _TOLD:
            return []
        if op == _TRUNCATED:
            raise WrongPipeline("a truncation is no operation of a feed: skipped.operations=t")
        kind = self._type or source.get("table") or source["collection"]
        after, before = _document(event["after"]), _document(event.get("before"))
        named = {"type": kind, "id": self._id(key, after or before or {}, source.get("connector"))}
        if op == _DELETED:
            return [{"event": "delete", **named}]
        if after is None:
            raise WrongPipeline(f"an event {op!r} without the whole row")
        made = "insert" if op in _INSERTED else "update"
        return [{"event": made, **named, "data": plain(after)}]

    def _id(self, key: bytes | None, row: Fields, connector: str | None) -> str:
        """Return the id of a row: the values in the key of its message (`joined`)."""
        fields = _payload(json.loads(key)) if key else {self._key: row.get(self._key)}
        values = list(fields.values()) if isinstance(fields, dict) else [fields]
        if not values or None in values:
            raise WrongPipeline(f"a row has neither a key nor a {self._key!r}: {sorted(row)}")
        if connector == _MONGODB:
            values = [_mongo_id(json.loads(each)) for each in values]
        return joined(values)

    def _gone(self, name: str) -> Fields:
        return {"event": "delete", "type": self._type, "id": name}


def until_wrong(
    told: Callable[[Message], list[Fields]], messages: Iterable[Message]
) -> tuple[list[list[Fields]], WrongPipeline | None]:
    """Return the operations of each message before the first that cannot be read, and its error."""
    found: list[list[Fields]] = []
    for message in messages:
        try:
            found.append(told(message))
        except WrongPipeline as wrong:
            return found, wrong
    return found, None


def _object(value: bytes | None) -> Fields:
    found = json.loads(value or b"null")
    if not isinstance(found, dict):
        raise WrongPipeline("must be a JSON object")
    return found


def _told(event: str, fields: Fields) -> list[Fields]:
    """
    Return the operation of a Tidings event; an empty list for others, such as the end of a copy.
    """
    event = "delete" if event == "leave" else event
    return [{**fields, "event": event}] if event in EVENTS else []


def _payload(value: Any) -> Any:
    """Remove the schema that a converter may wrap around the payload."""
    is_wrapped = isinstance(value, dict) and value.keys() == {"schema", "payload"}
    return value["payload"] if is_wrapped else value


def _document(row: Fields | str | None) -> Fields | None:
    """Return a row as a dict; MongoDB sends documents as text."""
    found: Fields | None = json.loads(row) if isinstance(row, str) else row
    return found


def _mongo_id(value: Any) -> Any:
    """Return the id of a document, without its type in extended JSON."""
    if isinstance(value, dict) and len(value) == 1:
        ((name, held),) = value.items()
        return held if name.startswith("$") else json.dumps(value)
    return value
