"""The rows of a table of PostgreSQL, in the order of their key, and the objects they are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from psycopg import sql
from tidings.pipelines.errors import WrongPipeline
from tidings.pipelines.sources.documents import plain

_TABLE = re.compile(r"([a-z_][a-z0-9_]*\.)?[a-z_][a-z0-9_]*", re.ASCII)
_ALL = sql.SQL("*")

Row = dict[str, Any]


class Rows:
    """
    Rows of *table*; *key* names the columns of their id, joined by `/` where there are several,
    *type* that of their objects (the table's name).

    Raises:
        WrongPipeline: *table* is no simple name, or there is no key.
    """

    def __init__(self, table: str, key: str | Sequence[str], type: str = "") -> None:
        if not _TABLE.fullmatch(table):
            raise WrongPipeline(f"table must be [SCHEMA.]NAME in a-z, 0-9 and '_', not {table!r}")
        self.keys = (key,) if isinstance(key, str) else tuple(key)
        if not self.keys:
            raise WrongPipeline(f"the rows of {table} must have a key")
        self.name, self.type = table, type or table.rpartition(".")[2]
        self.table = sql.Identifier(*table.split("."))

    def page(
        self, after: Sequence[Any] | None, most: int, columns: Sequence[str] = ()
    ) -> tuple[sql.Composed, tuple[Any, ...]]:
        """The query for *most* rows behind those with the key *after*, and its values."""
        keys = sql.SQL(", ").join(map(sql.Identifier, self.keys))
        places = sql.SQL(", ").join(sql.Placeholder() * len(self.keys))
        behind = sql.SQL("WHERE ({}) > ({})").format(keys, places) if after else sql.SQL("")
        query = sql.SQL("SELECT {} FROM {} {} ORDER BY {} LIMIT {}")
        return query.format(_named(columns), self.table, behind, keys, most), tuple(after or ())

    def those(
        self, kinds: Sequence[str], values: Sequence[Sequence[Any]], columns: Sequence[str] = ()
    ) -> tuple[sql.Composed, tuple[Any, ...]]:
        """The query for the rows with the keys *values*, of *kinds*, and its values."""
        keys = sql.SQL(", ").join(map(sql.Identifier, self.keys))
        arrays = sql.SQL(", ").join(sql.SQL(f"%s::{kind}[]") for kind in kinds)
        query = sql.SQL("SELECT {} FROM {} WHERE ({}) IN (SELECT * FROM unnest({}))")
        columnwise = tuple([value[at] for value in values] for at in range(len(self.keys)))
        return query.format(_named(columns), self.table, keys, arrays), columnwise

    def place(self, row: Row) -> list[Any]:
        """Where *row* is, for `page`, as JSON has it."""
        return [plain(row[key]) for key in self.keys]

    def id(self, row: Row) -> str:
        missing = [key for key in self.keys if row.get(key) is None]
        if missing:
            raise WrongPipeline(f"a row of {self.name} has no {missing[0]!r} to be its key")
        return "/".join(str(plain(row[key])) for key in self.keys)

    def put(self, row: Row, data: Mapping[str, Any] | None) -> dict[str, Any]:
        """The operation that makes the object what *row* is, with *data*."""
        operation = {"event": "insert", "type": self.type, "id": self.id(row)}
        return operation if data is None else operation | {"data": plain(data)}

    def gone(self, id: str) -> dict[str, Any]:
        return {"event": "delete", "type": self.type, "id": id}


def _named(columns: Sequence[str]) -> sql.Composable:
    return sql.SQL(", ").join(map(sql.Identifier, columns)) if columns else _ALL
