"""
How far a sync with a table is: a SQLite file, so that one that was killed goes on from there.

What is written together is there together. What was done behind it is done again, which finds it
done.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tidings.client import private_files
from tidings.sync.lineage import Counts

IN_MEMORY = Path(":memory:")
_MAKE = """
    CREATE TABLE IF NOT EXISTS standing (one INTEGER PRIMARY KEY CHECK (one = 1), text TEXT);
    CREATE TABLE IF NOT EXISTS missing (key TEXT PRIMARY KEY) WITHOUT ROWID;
"""


class WrongProgress(Exception):
    """The file is none of this sync, or cannot be used; the message says which."""


@dataclass(slots=True)
class Standing:
    """
    *step* is the one that a sync is in, *place* where it goes on there, as JSON has it.

    *rows* of the table were read, *objects* of the feed; the rest says what became of them.
    """

    step: str = ""
    place: list[Any] | None = None
    rows: int = 0
    objects: int = 0
    missing: int = 0
    creates: int = 0
    updates: int = 0
    deletes: int = 0
    settled: int = 0
    restless: int = 0
    applied: int = 0
    moved: int = 0
    done: int = 0


@dataclass(slots=True)
class Progress:
    """
    *what* names the sync: its feed, its table and what is compared.

    Raises:
        WrongProgress: the file is of another one, is no such file, or another process has it.
    """

    path: Path
    what: dict[str, Any]
    standing: Standing = field(default_factory=Standing)
    _file: sqlite3.Connection = field(init=False, repr=False)

    def __post_init__(self) -> None:
        try:
            private_files.make(self.path)
            self._file = sqlite3.connect(self.path, timeout=0, isolation_level=None)
            self._file.execute("PRAGMA locking_mode=EXCLUSIVE")  # until it is closed
            # A power cut may take the last of it, and what is older is as good.
            self._file.execute("PRAGMA journal_mode=WAL")
            self._file.execute("PRAGMA synchronous=NORMAL")
            self._file.executescript(_MAKE)
            self._file.execute("BEGIN EXCLUSIVE").execute("COMMIT")
            found = self._file.execute("SELECT text FROM standing").fetchone()
        except sqlite3.Error as error:
            raise WrongProgress(f"{self.path} cannot be used: {error}") from None
        if found is None:
            return
        kept = json.loads(found[0])
        if kept["what"] != self.what:
            raise WrongProgress(f"{self.path} is of another sync: {json.dumps(kept['what'])}")
        self.standing = Standing(**kept["standing"])

    def save(self, missing: Iterable[str] = ()) -> None:
        """What stands, and *missing*: keys of objects that have no row."""
        text = json.dumps({"what": self.what, "standing": asdict(self.standing)})
        with self._file, closing(self._file.cursor()) as cursor:
            cursor.execute("BEGIN")
            cursor.executemany("INSERT OR IGNORE INTO missing VALUES (?)", ((m,) for m in missing))
            cursor.execute("INSERT OR REPLACE INTO standing VALUES (1, ?)", (text,))
            cursor.execute("COMMIT")

    def missing(self, after: str, most: int) -> list[str]:
        """The *most* of those keys that come behind *after*."""
        query = "SELECT key FROM missing WHERE key > ? ORDER BY key LIMIT ?"
        return [key for (key,) in self._file.execute(query, (after, most))]

    def counts(self) -> Counts:
        """Of the whole sync, with what it did before it was killed."""
        return Counts(self.standing.rows, self.standing.objects, self.standing.applied)

    def clear(self) -> None:
        """The sync is done: the next one begins anew."""
        self._file.executescript("BEGIN; DELETE FROM missing; DELETE FROM standing; COMMIT;")

    def close(self) -> None:
        self._file.close()
