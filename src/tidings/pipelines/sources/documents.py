"""Convert documents of sources that have no operations to operations."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from tidings.pipelines.errors import WrongPipeline
from tidings.pipelines.ingest_source import Batch, Known, batches

Row = dict[str, Any]

_IN_JSON = (str, int, bool, type(None))


@dataclass(frozen=True, slots=True)
class Documents:
    """Objects of *type* with the field *key* as id. Without a *type*, documents are operations."""

    type: str
    key: str

    def operation(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """
        Return the operation that inserts *document*.

        Raises:
            WrongPipeline: the key is missing.
        """
        if not self.type:
            return {"event": "insert", **document}
        if document.get(self.key) in (None, ""):
            raise WrongPipeline(f"a document has no {self.key!r}: {sorted(document)}")
        name = joined([document[self.key]])
        return {"event": "insert", "type": self.type, "id": name, "data": plain(document)}


class Keyed:
    """
    Rows of *table* as objects of *type* (default: the table's name).

    *key* names the columns of their id (`joined`). It may be set later, from the primary key.
    """

    def __init__(self, table: str, key: str | Sequence[str], type: str = "") -> None:
        self.keys = (key,) if key and isinstance(key, str) else tuple(key)
        self.name, self.type = table, type or table.rpartition(".")[2]

    def place(self, row: Row) -> list[Any]:
        """Return the key of *row* as JSON values, for `page`."""
        return [plain(row[key]) for key in self.keys]

    def id(self, row: Row) -> str:
        missing = [key for key in self.keys if row.get(key) is None]
        if missing:
            raise WrongPipeline(f"a row of {self.name} has no {missing[0]!r} to be its key")
        return joined([row[key] for key in self.keys])

    def put(self, row: Row, data: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the operation that inserts the object of *row* with *data*."""
        operation = {"event": "insert", "type": self.type, "id": self.id(row)}
        return operation if data is None else operation | {"data": plain(data)}

    def gone(self, id: str) -> dict[str, Any]:
        return {"event": "delete", "type": self.type, "id": id}

    def missing(
        self, known: Known, pages: Callable[[], Iterable[Iterable[Row]]]
    ) -> Iterator[Batch]:
        """
        Yield deletions of the objects in the feed whose rows no longer exist.

        *pages* reads the keys of all rows. The log must still be read from a position before this
        call: it contains the rows that are inserted in the meantime.
        """
        gone = set(known(self.type))
        for page in pages() if gone else ():
            gone.difference_update(map(self.id, page))
        yield from batches([self.gone(id) for id in sorted(gone)], {})


def joined(values: Sequence[Any]) -> str:
    """
    Return the id of an object from the *values* of its key, different for each key.

    Several values are joined by `/`. In each of them `%` and `/` become `%25` and `%2F`.
    """
    texts = [_text(plain(value)) for value in values]
    if len(texts) == 1:
        return texts[0]
    return "/".join(text.replace("%", "%25").replace("/", "%2F") for text in texts)


def separated(id: str, count: int) -> list[str] | None:
    """Return the *count* texts of the key that `joined` made *id* of; None if it made another."""
    if count == 1:
        return [id]
    texts = [part.replace("%2F", "/").replace("%25", "%") for part in id.split("/")]
    return texts if len(texts) == count and joined(texts) == id else None


def _text(value: Any) -> str:
    is_nested = isinstance(value, (dict, list))
    return json.dumps(value, ensure_ascii=False) if is_nested else str(value)


def exact(text: str) -> float | str:
    """Return the number of JSON in *text*; return *text* if a double would change its value."""
    number = float(text)
    return number if Decimal(text) == Decimal(repr(number)) else text


def plain(value: Any) -> Any:
    """
    Convert *value* to JSON: times to ISO 8601, durations to seconds, bytes to base64.

    Values of types that JSON does not have, including decimals, become text.
    """
    if isinstance(value, _IN_JSON):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # JSON has neither NaN nor infinity
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(each) for each in value]
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    return str(value)
