"""
Store the progress of a sync with a table in a SQLite file, from which it can resume.

Each save is atomic. Work after the last save is repeated after a crash, and then found done.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tidings.client.files import make_private
from tidings.sync.lineage import Counts

IN_MEMORY = Path(":memory:")
_MAKE = """
    CREATE TABLE IF NOT EXISTS standing (one INTEGER PRIMARY KEY CHECK (one = 1), text TEXT);
    CREATE TABLE IF NOT EXISTS missing (key TEXT PRIMARY KEY) WITHOUT ROWID;
"""


class WrongProgress(Exception):
    """The file belongs to another sync, or cannot be used; the message says which."""


@dataclass(slots=True)
class Standing:
    """
    The progress of a sync.

    *step* is the current step, and *place* its position as JSON. *rows* of the table and *objects*
    of the feed were read; the other counts are the outcomes.
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
    The progress file of a sync. *what* identifies the sync: its feed, table and options.

    Raises:
        WrongProgress: the file belongs to another sync, has another format, or is in use.
    """

    path: Path
    what: dict[str, Any]
    standing: Standing = field(default_factory=Standing)
    _file: sqlite3.Connection = field(init=False, repr=False)

    def __post_init__(self) -> None:
        try:
            make_private(self.path)
            self._file = sqlite3.connect(self.path, timeout=0, isolation_level=None)
            self._file.execute("PRAGMA locking_mode=EXCLUSIVE")  # until the file is closed
            # A power failure may lose the last saves; an older state is equally valid.
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
        """Save the progress, and *missing*: keys of objects without a row."""
        text = json.dumps({"what": self.what, "standing": asdict(self.standing)})
        with self._file, closing(self._file.cursor()) as cursor:
            cursor.execute("BEGIN")
            cursor.executemany("INSERT OR IGNORE INTO missing VALUES (?)", ((m,) for m in missing))
            cursor.execute("INSERT OR REPLACE INTO standing VALUES (1, ?)", (text,))
            cursor.execute("COMMIT")

    def missing(self, after: str, most: int) -> list[str]:
        """Return up to *most* missing keys after *after*."""
        query = "SELECT key FROM missing WHERE key > ? ORDER BY key LIMIT ?"
        return [key for (key,) in self._file.execute(query, (after, most))]

    def counts(self) -> Counts:
        """Return the counts of the whole sync, including work before a restart."""
        return Counts(self.standing.rows, self.standing.objects, self.standing.applied)

    def clear(self) -> None:
        """Delete the progress after the sync: the next one starts from the beginning."""
        self._file.executescript("BEGIN; DELETE FROM missing; DELETE FROM standing; COMMIT;")

    def close(self) -> None:
        self._file.close()
