"""A table of PostgreSQL as a source: copied, then followed by logical replication."""

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

LOOK_S = 0.3  # how often the slot is asked: a change is in the feed within a second
CHANGES_MAX = 10_000  # asked of the slot at once; a larger transaction comes whole all the same
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
    The rows of *table* at *dsn* as objects of *type* (the table's name); *key* names the columns
    of their id, joined by `/` where there are several.

    With *follow* what happens to them afterwards, too: that takes `wal_level=logical`, and a
    publication and a replication slot of the name *slot* are made, `tidings_PIPELINE_READER`
    unless it is given. A slot holds back the server's log until it is read or dropped, and is of
    one feed alone. Without *follow* the table is copied once.

    Raises:
        WrongPipeline: *table* or *slot* is no simple name, or there is no key.
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
        Raises:
            WrongPipeline: the server keeps no log that can be followed, or another feed has the
                slot.
        """
        self._slot = self._slot or f"tidings_{re.sub('[^a-z0-9]', '_', name)}"[:63]
        self._standing, self._known = dict(standing.get(self._type, {})), known
        self._connection = psycopg.connect(self._dsn, autocommit=True)
        if self._follow:
            self._look_at_slot()

    def read(self) -> Iterator[Batch]:
        if self._follow and not self._standing:
            # Said before it is made: a slot that the feed does not know is somebody else's.
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
        """As lineage names it."""
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
            self._standing = {}  # nobody knows what happened since it was dropped

    def _make_slot(self) -> None:
        published = self._asked(_PUBLISHED, self._rows.name, self._slot)
        if not published:
            self._do(_PUBLISH.format(slot=sql.Identifier(self._slot), table=self._rows.table))
        elif not all(each["ours"] for each in published):
            raise WrongPipeline(f"{self}: the publication {self._slot} is of another table")
        self._do(_CREATE, self._slot)

    def _copied(self) -> Iterator[Batch]:
        """In the order of the key, from where it was left; what changes meanwhile is in the log."""
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
        """What the slot holds; it moves on behind what is in the feed."""
        decoder, operations, end = Decoder(), list[dict[str, Any]](), ""
        for row in self._asked(_PEEK, self._slot, CHANGES_MAX, self._slot):
            message = decoder.decode(row["data"])
            if isinstance(message, Committed):
                end = message.end
            if isinstance(message, Truncated):
                yield Batch(operations)  # what the feed has then depends on them
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
        """Values as a query would give them."""
        transformer = Transformer(self._connection)
        kinds = {column.name: column.oid for column in decoder.relations[relation]}
        return {
            name: None
            if text is None
            else transformer.get_loader(kinds[name], Format.TEXT).load(text)
            for name, text in (values or {}).items()
        }

    def _again(self, row: Row) -> Row | None:
        """The row as it is now: a large value that did not change is not told with a change."""
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
