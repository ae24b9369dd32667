"""Build the queries for rows of a PostgreSQL table, in the order of their key."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from psycopg import sql

from tidings.pipelines.errors import WrongPipeline
from tidings.pipelines.sources.documents import Keyed

_TABLE = re.compile(r"([a-z_][a-z0-9_]*\.)?[a-z_][a-z0-9_]*", re.ASCII)
_ALL = sql.SQL("*")


class Rows(Keyed):
    """
    Rows of a PostgreSQL table.

    Raises:
        WrongPipeline: *table* is not a simple name, or no key is given.
    """

    def __init__(self, table: str, key: str | Sequence[str], type: str = "") -> None:
        if not _TABLE.fullmatch(table):
            raise WrongPipeline(f"table must be [SCHEMA.]NAME in a-z, 0-9 and '_', not {table!r}")
        super().__init__(table, key, type)
        self.table = sql.Identifier(*table.split("."))

    def page(
        self, after: Sequence[Any] | None, most: int, columns: Sequence[str] = ()
    ) -> tuple[sql.Composed, tuple[Any, ...]]:
        """Return the query for up to *most* rows after the key *after*, and its values."""
        keys = sql.SQL(", ").join(map(sql.Identifier, self.keys))
        places = sql.SQL(", ").join(sql.Placeholder() * len(self.keys))
        behind = sql.SQL("WHERE ({}) > ({})").format(keys, places) if after else sql.SQL("")
        query = sql.SQL("SELECT {} FROM {} {} ORDER BY {} LIMIT {}")
        return query.format(_named(columns), self.table, behind, keys, most), tuple(after or ())

    def those(
        self, kinds: Sequence[str], values: Sequence[Sequence[Any]], columns: Sequence[str] = ()
    ) -> tuple[sql.Composed, tuple[Any, ...]]:
        """
        Return the query for the rows with the keys *values*, of the types *kinds*, and its values.
        """
        keys = sql.SQL(", ").join(map(sql.Identifier, self.keys))
        arrays = sql.SQL(", ").join(sql.SQL(f"%s::{kind}[]") for kind in kinds)
        query = sql.SQL("SELECT {} FROM {} WHERE ({}) IN (SELECT * FROM unnest({}))")
        columnwise = tuple([value[at] for value in values] for at in range(len(self.keys)))
        return query.format(_named(columns), self.table, keys, arrays), columnwise


def _named(columns: Sequence[str]) -> sql.Composable:
    return sql.SQL(", ").join(map(sql.Identifier, columns)) if columns else _ALL
