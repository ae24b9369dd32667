"""Read a table of PostgreSQL: copy it, then follow logical replication."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from time import sleep
from typing import Any

import psycopg
from psycopg import sql
from psycopg.adapt import Transformer
from psycopg.pq import Format
from psycopg.rows import dict_row

from tidings.lineage.datasets import Dataset
from tidings.pipelines.errors import WrongPipeline
from tidings.pipelines.ingest_source import BATCH, COMPLETE, COPY, Batch, Known, Standing
from tidings.pipelines.sinks.postgres import table_of, without_secrets
from tidings.pipelines.sources.documents import Row
from tidings.pipelines.sources.pgoutput import Changed, Committed, Decoder, Truncated, Values
from tidings.pipelines.sources.rows import Rows

LOOK_S = 0.3  # how often the slot is read: a change is in the feed within a second
CHANGES_MAX = 10_000  # changes per request; a larger transaction is still returned completely
_SLOT = re.compile(r"[a-z0-9_]{1,63}", re.ASCII)

_PUBLISHED = """SELECT prrelid = to_regclass(%s) AS ours FROM pg_publication
    JOIN pg_publication_rel ON prpubid = pg_publication.oid WHERE pubname = %s"""
_PUBLISH = sql.SQL("CREATE PUBLICATION {slot} FOR TABLE {table}")
_STANDS = "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s"
_CREATE = "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')"
_PEEK = """SELECT data FROM pg_logical_slot_peek_binary_changes(
    %s, NULL, %s, 'proto_version', '1', 'publication_names', %s)"""
_ADVANCE = "SELECT pg_replication_slot_advance(%s, %s)"


class Table:
    """
    A source of the rows of *table* at *dsn*, as objects of *type* (default: the table's name).

    *key* names the columns of their id, joined by `/`. With *follow* later changes are read, too.
    This requires `wal_level=logical`, and creates a publication and a replication slot named *slot*
    (default: `tidings_PIPELINE_READER`). A slot retains the server's log until it is read or
    dropped, and belongs to one feed. Without *follow* the table is copied once.

    Raises:
        WrongPipeline: *table* or *slot* is not a simple name, or no key is given.
    """

    def __init__(
        self,
        dsn: str,
        table: str,
        *,
        type: str = "",
        key: str | Sequence[str] = "id",
        follow: bool = True,
        slot: str = "",
    ) -> None:
        if slot and not _SLOT.fullmatch(slot):
            raise WrongPipeline(f"slot must be 1 to 63 of a-z, 0-9 and '_', not {slot!r}")
        self._rows = Rows(table, key, type)
        self._type, self._dsn, self._follow = self._rows.type, dsn, follow
        self._slot, self._standing = slot, dict[str, Any]()
        self._connection: psycopg.Connection | None = None

    def open(self, name: str, standing: Standing, known: Known) -> None:
        """
        Connect, and resume at *standing*.

        Raises:
            WrongPipeline: the server has no log that can be followed, or the slot belongs to
                another feed.
        """
        self._slot = self._slot or f"tidings_{re.sub('[^a-z0-9]', '_', name)}"[:63]
        self._standing, self._known = dict(standing.get(self._type, {})), known
        self._connection = psycopg.connect(self._dsn, autocommit=True)
        if self._follow:
            self._look_at_slot()

    def read(self) -> Iterator[Batch]:
        if self._follow and not self._standing:
            # Store the name before creating the slot: a slot unknown to the feed belongs to another
            # reader.
            self._standing = {"mode": COPY, "slot": self._slot}
            yield Batch([], {self._type: self._standing})
            self._make_slot()
        if self._standing.get("mode") != COMPLETE:
            yield from self._copied()
        while self._follow:
            yield from self._changes()
            yield Batch()
            sleep(LOOK_S)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def datasets(self) -> list[Dataset]:
        """Return the datasets of this source, for lineage."""
        return [table_of(self._dsn, self._rows.name)]

    def __str__(self) -> str:
        return f"table {self._rows.name} at {without_secrets(self._dsn)}"

    def _look_at_slot(self) -> None:
        (level,) = self._asked("SELECT current_setting('wal_level') AS name")
        if level["name"] != "logical":
            rule = "to be followed the server must run with wal_level=logical"
            raise WrongPipeline(f"{self}: {rule}, not {level['name']}; or give follow=False")
        there, ours = self._asked(_STANDS, self._slot), self._standing.get("slot") == self._slot
        if there and not ours:
            rule = "is there and is not of this feed: give another, or drop it"
            raise WrongPipeline(f"{self}: the slot {self._slot} {rule}")
        if ours and not there:
            self._standing = {}  # changes since the slot was dropped are unknown

    def _make_slot(self) -> None:
        published = self._asked(_PUBLISHED, self._rows.name, self._slot)
        if not published:
            self._do(_PUBLISH.format(slot=sql.Identifier(self._slot), table=self._rows.table))
        elif not all(each["ours"] for each in published):
            raise WrongPipeline(f"{self}: the publication {self._slot} is of another table")
        self._do(_CREATE, self._slot)

    def _copied(self) -> Iterator[Batch]:
        """
        Yield all rows by key, from the last position; the log contains changes made since the
        start.
        """
        while rows := self._page(self._standing.get("at")):
            last = self._rows.place(rows[-1])
            self._standing = {**self._standing, "mode": COPY, "at": last}
            yield Batch([self._rows.put(row, row) for row in rows], {self._type: self._standing})
        self._standing = {"mode": COMPLETE, "slot": self._slot}
        yield Batch([], {self._type: self._standing})

    def _page(self, after: Sequence[Any] | None) -> list[Row]:
        query, values = self._rows.page(after, BATCH)
        return self._asked(query, *values)

    def _changes(self) -> Iterator[Batch]:
        """Yield the changes in the slot; advance it when the feed has them."""
        decoder, operations, end = Decoder(), list[dict[str, Any]](), ""
        for row in self._asked(_PEEK, self._slot, CHANGES_MAX, self._slot):
            message = decoder.decode(row["data"])
            if isinstance(message, Committed):
                end = message.end
            if isinstance(message, Truncated):
                yield Batch(operations)  # the objects in the feed then depend on them
                operations = []
            operations += self._operations(message, decoder)
            while len(operations) >= BATCH:
                yield Batch(operations[:BATCH])
                operations = operations[BATCH:]
        if operations:
            yield Batch(operations)
        if end:
            self._do(_ADVANCE, self._slot, end)

    def _operations(self, change: object, decoder: Decoder) -> Iterator[dict[str, Any]]:
        if isinstance(change, Truncated):
            yield from (self._rows.gone(name) for name in self._known(self._type))
        if not isinstance(change, Changed):
            return
        old = self._loaded(change.relation, change.old, decoder)
        if change.new is None:
            yield self._rows.gone(self._rows.id(old))
            return
        new: Row | None = self._loaded(change.relation, change.new, decoder)
        assert new is not None
        if change.old is not None and self._rows.id(old) != self._rows.id(new):
            yield self._rows.gone(self._rows.id(old))
        row = new if change.whole else self._again(new)
        if row is not None:
            yield self._rows.put(row, row)

    def _loaded(self, relation: int, values: Values | None, decoder: Decoder) -> Row:
        """Return values with the types that a query would return."""
        transformer = Transformer(self._connection)
        kinds = {column.name: column.oid for column in decoder.relations[relation]}
        return {
            name: None
            if text is None
            else transformer.get_loader(kinds[name], Format.TEXT).load(text)
            for name, text in (values or {}).items()
        }

    def _again(self, row: Row) -> Row | None:
        """Return the current row: a change leaves out large values that did not change."""
        same = sql.SQL(" AND ").join(
            sql.SQL("{} = {}").format(sql.Identifier(key), sql.Placeholder())
            for key in self._rows.keys
        )
        query = sql.SQL("SELECT * FROM {} WHERE {}").format(self._rows.table, same)
        rows = self._asked(query, *(row[key] for key in self._rows.keys))
        return rows[0] if rows else None

    def _asked(self, query: sql.Composed | str, *values: Any) -> list[Row]:
        assert self._connection is not None
        with self._connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(query, values).fetchall()

    def _do(self, query: sql.Composed | str, *values: Any) -> None:
        assert self._connection is not None
        self._connection.execute(query, values)
