"""
Pages that a restore lost: they were told, and the tables that were put back do not have them.

Their numbers are never given again, so a cursor that names one says by itself that its consumer
has heard of what the feed knows nothing of any more. Only a full copy heals that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.model.cursors import Place, Replication

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidings.core.model.cursors import Cursor

Lost = tuple[int, int]  # the first and the last page of what one restore lost


def hit(cursor: Cursor, lost: Iterable[Lost]) -> bool:
    """
    Whether who comes with *cursor* may have heard of what was lost.

    Rows of a copy may be from any moment after it began: one that began before the restore was
    perhaps told some of what was lost, also where the log behind it is whole.
    """
    for first, last in lost:
        match cursor:
            case Place(page=page) if first <= page <= last:
                return True
            case Replication(page=page, bucket=bucket) if page <= last and (
                page >= first or bucket < limits.BUCKETS
            ):
                return True
    return False
