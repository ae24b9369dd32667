"""
Keep the tables fast to read and write: compact small files and expire snapshots.

All work is bounded: a run rewrites some files of each table, and the next run continues. The rows
of a table do not change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.lake.metadata import TableMetadata
from tidings.lake.tables import Table
from tidings.lake.warehouse import CATALOG, HISTORY

if TYPE_CHECKING:
    from tidings.lake.feed_tables import FeedTables

FILE_BYTES = 128 * 1024 * 1024  # target size of a file: a task reads one in seconds
FILES_MAX = 50  # number of small files that is acceptable for reads
REWRITTEN_MAX = 500  # files of a table per run, so that a batch never waits for hours
DAYS = 3  # recent days of `history` to check: older ones get no new files
_DAY_S = 24 * 3600
SNAPSHOTS_MAX = 60  # above this number, expire the old ones
# Also rewrite a file if this share of its rows is deleted: reads skip them one by one.
_GONE_RATIO = "0.3"


@dataclass(frozen=True, slots=True)
class Maintenance:
    tables: FeedTables

    def run(self) -> None:
        for table in self.tables.all():
            found = table.metadata()
            if found is None or not found.snapshot:
                continue
            if due(found):
                self.tables.begin("compacting files")
                rewrite(table)
            if found.snapshots > SNAPSHOTS_MAX:
                table.session.sql(f"CALL {CATALOG}.system.expire_snapshots('{_short(table)}')")
        self.tables.look()


def due(found: TableMetadata) -> bool:
    """Return True if a table has many more files than its size requires."""
    return found.files > FILES_MAX + 2 * found.bytes // FILE_BYTES


def rewrite(table: Table) -> None:
    options = {
        "target-file-size-bytes": str(FILE_BYTES),
        "min-input-files": "5",
        "max-files-to-rewrite": str(REWRITTEN_MAX),
        "delete-ratio-threshold": _GONE_RATIO,
        "remove-dangling-deletes": "true",
    }
    written = ", ".join(f"'{name}', '{value}'" for name, value in options.items())
    table.session.sql(
        f"CALL {CATALOG}.system.rewrite_data_files(table => '{_short(table)}',"
        f" options => map({written}){_newest(table)})"
    )


def _newest(table: Table) -> str:
    """Return a filter for the recent days of `history`, before its place; "" for other tables."""
    place = table.through() if table.kind == HISTORY else None
    if place is None:
        return ""
    return f", where => 'at >= timestamp_seconds({max(0, place.seconds - DAYS * _DAY_S)})'"


def _short(table: Table) -> str:
    return table.name.removeprefix(f"{CATALOG}.")
