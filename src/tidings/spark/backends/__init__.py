"""The backends of a read: over HTTP, by the tables of a deployment, or by its archive."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidings.core.model.filters import Filter
    from tidings.spark.backends.backend import Backend
    from tidings.spark.options import Where


def opened(where: Where, wanted: Filter) -> Backend:
    """
    Return the backend that the options name.

    *wanted* lets the HTTP server leave out what would be filtered afterwards.

    Raises:
        WrongOption: the feed, stage or archive does not exist.
    """
    if where.url:
        from tidings.spark.backends.http import HttpBackend

        return HttpBackend(where, wanted)
    if where.stage or where.tables or where.endpoint:
        from tidings.spark.backends.dynamodb import DynamoDBBackend, tables_of

        return DynamoDBBackend(tables_of(where), where)
    from tidings.spark.backends.archive import ArchiveBackend

    return ArchiveBackend(where)
