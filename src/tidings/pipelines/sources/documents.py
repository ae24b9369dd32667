"""Convert documents of sources that have no operations to operations."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any

from tidings.pipelines.errors import WrongPipeline

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
        name = str(plain(document[self.key]))
        return {"event": "insert", "type": self.type, "id": name, "data": plain(document)}


class Keyed:
    """
    Rows of *table* as objects of *type* (default: the table's name).

    *key* names the columns of their id. The values of several columns are joined by `/`.

    Raises:
        WrongPipeline: no key is given.
    """

    def __init__(self, table: str, key: str | Sequence[str], type: str = "") -> None:
        self.keys = (key,) if isinstance(key, str) else tuple(key)
        if not self.keys:
            raise WrongPipeline(f"the rows of {table} must have a key")
        self.name, self.type = table, type or table.rpartition(".")[2]

    def place(self, row: Row) -> list[Any]:
        """Return the key of *row* as JSON values, for `page`."""
        return [plain(row[key]) for key in self.keys]

    def id(self, row: Row) -> str:
        missing = [key for key in self.keys if row.get(key) is None]
        if missing:
            raise WrongPipeline(f"a row of {self.name} has no {missing[0]!r} to be its key")
        return "/".join(str(plain(row[key])) for key in self.keys)

    def put(self, row: Row, data: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the operation that inserts the object of *row* with *data*."""
        operation = {"event": "insert", "type": self.type, "id": self.id(row)}
        return operation if data is None else operation | {"data": plain(data)}

    def gone(self, id: str) -> dict[str, Any]:
        return {"event": "delete", "type": self.type, "id": id}


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
