"""Values of the core as JSON documents. An update states the version that it replaces.

These values are profiles, keys, consumers, relays and the like. A feed has few of them, and each is
read as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from tidings.core.changeagent.documents import USERS
from tidings.server.sqlite.conversion import IS, NAMES, SET, from_json
from tidings.server.sqlite.database import Database, in_transaction

if TYPE_CHECKING:
    import sqlite3


_DUE = frozenset({"relay"})  # see `DueFeeds`


def to_json(value: object) -> str:
    """Return *value* as JSON. It may consist of JSON's types and of the classes in `_TYPES`."""
    return json.dumps(to_plain(value), ensure_ascii=False, separators=(",", ":"))


def to_plain(value: Any) -> Any:
    """Return *value* converted to the types of JSON."""
    if isinstance(value, Enum):
        return {IS: NAMES[type(value)], "value": value.value}
    if is_dataclass(value) and not isinstance(value, type):
        return {IS: NAMES[type(value)], **_set_fields(value)}
    if isinstance(value, frozenset):
        return {IS: SET, "items": sorted((to_plain(each) for each in value), key=json.dumps)}
    if isinstance(value, tuple | list):
        return [to_plain(each) for each in value]
    assert value is None or isinstance(value, bool | int | str), type(value)
    return value


def _set_fields(value: Any) -> dict[str, Any]:
    """Return the fields of *value* that differ from their defaults.

    Fields with their defaults are not stored, so a new field needs no migration.
    """
    return {
        each.name: to_plain(getattr(value, each.name))
        for each in fields(value)
        if each.default is MISSING or getattr(value, each.name) != each.default
    }


class Documents:
    """The documents of one *kind*, by feed and name."""

    def __init__(self, database: Database, kind: str) -> None:
        self._database, self._kind = database, kind

    def get(self, feed: str, name: str = "") -> Any:
        """Return the value; None if it is missing."""
        with self._database.reading() as sql:
            row = sql.execute(
                "SELECT body FROM documents WHERE kind = ? AND feed = ? AND name = ?",
                (self._kind, feed, name),
            ).fetchone()
        return from_json(row[0]) if row else None

    def all(self, feed: str | None = None) -> Sequence[Any]:
        """Return the documents of *feed* by name; for None, those of all feeds."""
        # One statement for both cases would not use the primary key.
        one, only = ((), "") if feed is None else ((feed,), " AND feed = ?")
        with self._database.reading() as sql:
            rows = sql.execute(
                f"SELECT body FROM documents WHERE kind = ?{only} ORDER BY feed, name",
                (self._kind, *one),
            ).fetchall()
        return [from_json(body) for (body,) in rows]

    def put(self, feed: str, name: str, value: object) -> None:
        """Store *value* in place of the existing document, if any."""
        columns = self._kind, feed, name, to_json(value)
        self._execute(feed, "INSERT OR REPLACE INTO documents VALUES (?, ?, ?, 0, ?)", *columns)

    def replace(self, feed: str, name: str, version: int, value: object) -> bool:
        """Store *value* as version + 1 and return True if the stored version is *version*.

        Otherwise store nothing and return False.

        A document that is missing has version 0.
        """
        key, body = (self._kind, feed, name), to_json(value)
        if not version:
            insert = "INSERT OR IGNORE INTO documents VALUES (?, ?, ?, 1, ?)"
            return self._execute(feed, insert, *key, body) == 1
        update = (
            "UPDATE documents SET version = version + 1, body = ?"
            " WHERE kind = ? AND feed = ? AND name = ? AND version = ?"
        )
        return self._execute(feed, update, body, *key, version) == 1

    def remove(self, feed: str, name: str) -> None:
        """Delete the document if it exists."""
        delete = "DELETE FROM documents WHERE kind = ? AND feed = ? AND name = ?"
        self._execute(feed, delete, self._kind, feed, name)

    @in_transaction
    def _execute(self, sql: sqlite3.Connection, feed: str, statement: str, *values: object) -> int:
        """Execute *statement*, which changes *feed*; return the number of rows that it changed."""
        if self._kind in _DUE:
            self._database.changed_document(feed, self._kind)
        return sql.execute(statement, values).rowcount


_UNMARKED = """
SELECT DISTINCT feed FROM records AS used
WHERE (kind = 'key' OR (kind = 'operator-document' AND name = ?)) AND NOT EXISTS (
    SELECT 1 FROM records AS profile WHERE profile.kind = 'profile' AND profile.feed = used.feed
    AND instr(profile.body, '"closed":true'))
"""


def used_but_open(database: Database) -> list[str]:
    """Return feeds with keys or users, and without a profile that is closed; see `profiles.close`.

    Earlier releases did not close a feed when they stored a key or a user.
    """
    with database.reading() as sql:
        return [feed for (feed,) in sql.execute(_UNMARKED, (USERS,))]


def deleted_feeds(database: Database) -> list[str]:
    """Return the names of the feeds that were deleted, and not created again."""
    with database.reading() as sql:
        return [
            name
            for (name,) in sql.execute(
                "SELECT name FROM records WHERE kind = 'feed' AND feed = ''"
                " AND instr(body, '\"live\":false') ORDER BY name"
            )
        ]


def feeds_with_webhooks(database: Database) -> list[str]:
    """Return the feeds that have or had webhooks. They are found by an index of their own."""
    with database.reading() as sql:
        return [
            feed
            for (feed,) in sql.execute(
                "SELECT feed FROM records WHERE kind = 'operator-document' AND name = 'webhooks'"
            )
        ]
