"""Convert documents, rows and messages of brokers to operations."""

from __future__ import annotations

import base64
import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any, TypeVar

from tidings.client.poster import encode
from tidings.core.errors import InvalidOperation, TooLarge
from tidings.core.model.envelopes import CLOUDEVENTS, DEBEZIUM, TIDINGS
from tidings.core.model.operations import EVENTS, LongNumber, line_from, parse_number, spell_numbers
from tidings.core.sync.dumps import DELETE_SHARE_MAX
from tidings.pipelines.ingest_source import Batch, Digests, Known, batches, owned, owner_tag
from tidings.pipelines.messages import WrongPipeline
from tidings.pipelines.row_rules import STOP, Names, RowRules, names_of, refusal_of

Row = dict[str, Any]

# Deletions after a new copy that need no confirmation, whatever their share of the objects: a table
# of a few rows may lose any of them.
DELETES_MAX = 10
_log = logging.getLogger("tidings.pipelines")
_JSON = json.JSONEncoder(ensure_ascii=False)
_IN_JSON = (str, int, bool, type(None))


@dataclass(frozen=True, slots=True)
class Documents:
    """A converter of documents to operations.

    A document is an object of *type*, with the field *key* as its id. If *type* is empty, the
    document already is an operation.
    """

    type: str
    key: str

    def operation(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the operation that inserts *document*.

        Raises:
            WrongPipeline: the document does not have the field *key*.
        """
        if not self.type:
            return {"event": "insert", **document}
        if document.get(self.key) in (None, ""):
            raise WrongPipeline(f"a document has no {self.key!r}: {sorted(document)}")
        name = join_key([document[self.key]])
        return {"event": "insert", "type": self.type, "id": name, "data": to_json_value(document)}


class Keyed(RowRules):
    """A converter of rows of *table* to operations on objects of *type* (default: its name).

    *key* names the columns that form an object's id (`join_key`). If *key* is empty, the attribute
    `keys` is set later, from the primary key. *max_deletes* is the number of deletions that are
    made without a confirmation (`missing`). *columns*, *exclude* and *too_large* are those of
    `RowRules`.
    """

    def __init__(
        self,
        table: str,
        key: str | Sequence[str],
        type: str = "",
        max_deletes: int = DELETES_MAX,
        columns: Names = (),
        exclude: Names = (),
        too_large: str = STOP,
    ) -> None:
        super().__init__(table, names_of(key), names_of(columns), names_of(exclude), too_large)
        self._deletes_max, self.type = max_deletes, type or table.rpartition(".")[2]
        self._copied: Digests = {}  # the objects that were in the feed when the copy began

    def key_of(self, row: Row) -> list[Any]:
        """Return the key of *row* as JSON values."""
        return [to_json_value(row[key]) for key in self.keys]

    def id(self, row: Row) -> str:
        missing = [key for key in self.keys if row.get(key) is None]
        if missing:
            raise WrongPipeline(f"a row of {self.name} has no {missing[0]!r}, a part of its key")
        return join_key([row[key] for key in self.keys])

    def put(
        self, row: Row, data: Mapping[str, Any] | None, event: str = "insert"
    ) -> dict[str, Any]:
        """Return the operation that inserts or updates the object of *row* with *data*."""
        operation = {"event": event, "type": self.type, "id": self.id(row)}
        return operation if data is None else operation | {"data": to_json_value(data)}

    def begin_copy(self, known: Known) -> None:
        """Read the ids of the objects in the feed, by which `copy` chooses the events."""
        self._copied = known(self.type)

    def copy(self, rows: Iterable[Row]) -> list[dict[str, Any]]:
        """Return the operations of *rows* of a copy.

        A row is an insert if the feed had no object of it when the copy began, and otherwise an
        update. An object of this reader with the same data gets no operation.
        """
        operations = []
        for row in rows:
            id = self.id(row)
            put = self.put(row, row, "update" if id in self._copied else "insert")
            known = self._copied.get(id)
            if not known or known != digest(put["data"]):
                operations.append(put)
        return operations

    def end_copy(self) -> None:
        self._copied = {}

    def problems_of_size(self, name: str, rows: Callable[[], Iterable[Row]]) -> list[str]:
        """Return the problem of rows for which the reader *name* would stop; warn of other rows.

        *rows* reads the largest rows.
        """
        found = list[str]()
        try:
            for row in rows():
                put = owned(self.put(row, row), owner_tag(name))
                if refusal_of(put, encode(put)):
                    found.append(str(put["id"]))
        except WrongPipeline:
            raise
        except Exception as error:  # noqa: BLE001 each driver has errors of its own
            _log.warning("%s: not all rows above the limit were counted: %s", self.name, error)
        return self.judge_large(found)

    def deletion(self, id: str) -> dict[str, Any]:
        return {"event": "delete", "type": self.type, "id": id}

    def missing(
        self, known: Known, pages: Callable[[], Iterable[Iterable[Row]]], *, is_logged: bool = False
    ) -> Iterator[Batch]:
        """Yield deletions of the objects of this reader in the feed that no longer have a row.

        *pages* reads the keys of all rows. A row that is inserted during this call may be missed,
        and its object deleted. So the caller must afterwards read the database's log from a
        position before this call. *is_logged* is True if the database's log has the statement that
        removed the rows.

        Raises:
            WrongPipeline: more objects have no row than the limits allow, so the database may be
                empty or another one.
        """
        digests = self._copied or known(self.type)
        gone = {id for id, each in digests.items() if each is not None}
        count = len(gone)
        for page in pages() if gone else ():
            gone.difference_update(map(self.id, page))
        if not is_logged and len(gone) > max(self._deletes_max, DELETE_SHARE_MAX * count):
            rule = f"more than {DELETE_SHARE_MAX:.0%} and than max_deletes={self._deletes_max}"
            give = f"if these rows were really deleted, give max_deletes={len(gone)}"
            found = f"{len(gone):,} of {count:,} objects of the type {self.type} have no row"
            raise WrongPipeline(f"{self.name}: {found}, {rule}; {give}")
        yield from batches([self.deletion(id) for id in sorted(gone)], {})


def digest(data: Any) -> int:
    """Return a hash of the JSON value *data* that is the same within this process."""
    return hash(to_text(data, sort_keys=True))


def join_key(values: Sequence[Any]) -> str:
    """Return the id of an object with the *values* of its key. Different keys give different ids.

    Several values are joined by `/`. Within these values, `%` and `/` become `%25` and `%2F`.
    """
    texts = [_text(to_json_value(value)) for value in values]
    if len(texts) == 1:
        return texts[0]
    return "/".join(text.replace("%", "%25").replace("/", "%2F") for text in texts)


def split_key(id: str, count: int) -> list[str] | None:
    """Return the *count* values, as text, that `join_key` joined to *id*.

    Return None if `join_key` cannot have made *id*.
    """
    if count == 1:
        return [id]
    texts = [part.replace("%2F", "/").replace("%25", "%") for part in id.split("/")]
    return texts if len(texts) == count and join_key(texts) == id else None


def _text(value: Any) -> str:
    is_json = isinstance(value, (dict, list, LongNumber))
    return spell_numbers(value, _JSON) if is_json else str(value)


def parse_json(text: str | bytes) -> Any:
    """Return the value of the JSON *text*.

    Numbers keep their digits. A number that is too large for a feed is returned as text.
    """
    return json.loads(text, parse_float=_number)


def to_text(value: Any, *, separators: tuple[str, str] = (",", ":"), **options: Any) -> str:
    """Return *value* as JSON, with all digits of its numbers; *options* are a `JSONEncoder`'s."""
    return spell_numbers(value, json.JSONEncoder(separators=separators, **options))


def _number(text: str) -> float | str:
    number = parse_number(text)
    return number if math.isfinite(number) else text


def to_json_value(value: Any) -> Any:
    """Convert *value* to JSON, with times in ISO 8601, durations in seconds, and bytes in base64.

    Values of types that JSON does not have, including decimals, become text.
    """
    if isinstance(value, _IN_JSON):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # JSON has no NaN and no infinity
    if isinstance(value, Mapping):
        return {str(name): to_json_value(each) for name, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_json_value(each) for each in value]
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    return str(value)


PLAIN = "plain"
_OURS = f"{TIDINGS}."  # the prefix of the types of Tidings' own CloudEvents
_MONGODB = "mongodb"  # the connector that sends documents and ids as text
_INSERTS, _DELETE, _MESSAGE, _TRUNCATED = ("c", "r"), "d", "m", "t"

Fields = dict[str, Any]
Message = TypeVar("Message")
# A function that converts the key and the value of a message to operations.
Read = Callable[[bytes | None, bytes | None], Iterable[Fields]]


class Messages:
    """A converter of messages to operations.

    *envelope* is one of:

    - `plain`: A message is an object of *type* with the field *key* as its id. A message without a
      value deletes the object with the message's key. If *type* is empty, a message is an operation
      in the form in which operations are posted.
    - `tidings`: The format that Tidings writes.
    - `cloudevents`: The format that Tidings writes, or other CloudEvents in structured JSON. Each
      of these other events is an object of *type*. Its id is the field *key*, or the subject if the
      field is missing.
    - `debezium`: The format that Tidings writes, or change events of Debezium's connectors. A row
      in a change event is an object of *type* (default: the name of the table). Its id is the key
      of the message, or the field *key* if the message has no key.
    - A function that converts the key and the value of a message to operations.

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

    def operations(self, origin: str, key: bytes | None, value: bytes | None) -> list[Fields]:
        """Return the operations of a message; an empty list if the message changes no object.

        *origin* identifies the message in errors.

        Raises:
            WrongPipeline: the message cannot be read, or a feed would reject it.
        """
        try:
            operations = list(self._read(key, value))
            for each in operations:
                line_from(each, now_ms=0)
        except (WrongPipeline, InvalidOperation, TooLarge) as error:
            raise WrongPipeline(f"{origin}: {error}") from None
        except Exception as error:  # noqa: BLE001 bad bytes or a user's function may raise anything
            raise WrongPipeline(f"{origin}: {type(error).__name__}: {error}") from None
        return operations

    def _plain(self, key: bytes | None, value: bytes | None) -> list[Fields]:
        if value is not None:
            return [self._documents.operation(_object(value))]
        return [self._deletion(key.decode())] if self._type and key else []

    def _ours(self, key: bytes | None, value: bytes | None) -> list[Fields]:
        message = _object(value)
        return _operations_of(message["op"], {**message["data"], "type": message["namespace"]})

    def _cloudevent(self, key: bytes | None, value: bytes | None) -> list[Fields]:
        event = _object(value)
        if event["type"].startswith(_OURS):
            return _operations_of(event["type"].removeprefix(_OURS), event.get("data", {}))
        if not self._type:
            rule = f"a CloudEvent {event['type']!r} needs the type of its object; give type="
            raise WrongPipeline(rule)
        data = event["data"]
        named = {self._key: event.get("subject"), **data}
        return [self._documents.operation(named) | {"data": to_json_value(data)}]

    def _debezium(self, key: bytes | None, value: bytes | None) -> list[Fields]:
        if value is None:
            return []  # Debezium sends such a message after a deletion, for Kafka's compaction
        event = _payload(parse_json(value))
        if "op" not in event:
            raise WrongPipeline(f"not a change event of Debezium; its fields are {sorted(event)}")
        source, op = event["source"], event["op"]
        if source.get("connector") == TIDINGS:
            return _operations_of(source["event"], event["after"] or event["before"] or {})
        if op == _MESSAGE:
            return []
        if op == _TRUNCATED:
            raise WrongPipeline("a feed cannot express a truncation; set skipped.operations=t")
        kind = self._type or source.get("table") or source["collection"]
        after, before = _document(event["after"]), _document(event.get("before"))
        named = {"type": kind, "id": self._id(key, after or before or {}, source.get("connector"))}
        if op == _DELETE:
            return [{"event": "delete", **named}]
        if after is None:
            raise WrongPipeline(f"an event {op!r} lacks the whole row")
        made = "insert" if op in _INSERTS else "update"
        return [{"event": made, **named, "data": to_json_value(after)}]

    def _id(self, key: bytes | None, row: Fields, connector: str | None) -> str:
        """Return the id of a row: the values in its message's key, joined by `join_key`."""
        fields = _payload(parse_json(key)) if key else {self._key: row.get(self._key)}
        values = list(fields.values()) if isinstance(fields, dict) else [fields]
        if not values or None in values:
            fields = sorted(row)
            raise WrongPipeline(f"a row has neither a key nor a {self._key!r}; it has {fields}")
        if connector == _MONGODB:
            values = [_mongo_id(parse_json(each)) for each in values]
        return join_key(values)

    def _deletion(self, name: str) -> Fields:
        return {"event": "delete", "type": self._type, "id": name}


def until_wrong(
    parse: Callable[[Message], list[Fields]], messages: Iterable[Message]
) -> tuple[list[list[Fields]], WrongPipeline | None]:
    """Return the operations of the messages before the first unreadable one, and its error.

    The error is None if all messages can be read.
    """
    found: list[list[Fields]] = []
    for message in messages:
        try:
            found.append(parse(message))
        except WrongPipeline as wrong:
            return found, wrong
    return found, None


def _object(value: bytes | None) -> Fields:
    found = parse_json(value or b"null")
    if not isinstance(found, dict):
        raise WrongPipeline("must be a JSON object")
    return found


def _operations_of(event: str, fields: Fields) -> list[Fields]:
    """Return the operation of an event of Tidings, as a list.

    The list is empty if the event has no operation, like `live`.
    """
    if event == "erase":  # its data are the details of the erasure
        fields = {name: value for name, value in fields.items() if name != "data"}
    event = "delete" if event in ("leave", "erase") else event
    return [{**fields, "event": event}] if event in EVENTS else []


def _payload(value: Any) -> Any:
    """Return the payload of *value*, in which a converter may have wrapped payload and schema."""
    is_wrapped = isinstance(value, dict) and value.keys() == {"schema", "payload"}
    return value["payload"] if is_wrapped else value


def _document(row: Fields | str | None) -> Fields | None:
    """Return a row as a dict. The connector for MongoDB sends documents as text."""
    found: Fields | None = parse_json(row) if isinstance(row, str) else row
    return found


def _mongo_id(value: Any) -> Any:
    """Return the id of a document of MongoDB, without the type that extended JSON adds."""
    if isinstance(value, dict) and len(value) == 1:
        ((name, held),) = value.items()
        return held if name.startswith("$") else to_text(value, separators=(", ", ": "))
    return value
