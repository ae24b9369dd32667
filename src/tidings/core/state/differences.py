"""How a row of the state differs from what the log says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidings.core.state.rows import Row


class Kind(Enum):
    """How a row differs from the fold."""

    MISSING = "missing"  # the log has the object, the state does not
    STALE = "stale"  # the row is an earlier operation
    ALTERED = "altered"  # the row is at the right place and says something else
    ALIEN = "alien"  # the log has no such operation of the object
    BROKEN = "broken"  # the row lacks its place, time or line


@dataclass(frozen=True, slots=True)
class Difference:
    """
    The row *stored* under *key* in *bucket*, where the log asks for the row *wanted*.

    None is no row: none stored, or none wanted.
    """

    kind: Kind
    bucket: int
    key: str
    stored: Row | None
    wanted: Row | None
