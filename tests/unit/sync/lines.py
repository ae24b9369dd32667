"""Lines of dumps and rows of states."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from tidings.core.model.operations import as_event
from tidings.core.state.rows import Row
from tidings.core.sync.dumps import Described, read_line


def line(id: str, second: float, *, type: str = "video", parents: Sequence[str] = ()) -> bytes:
    """Return an object's line with the time *second* of a day."""
    stamp = f"2026-01-01T00:00:{second:06.3f}Z"
    fields = {"type": type, "id": id, "parents": list(parents), "timestamp": stamp}
    return json.dumps(fields, ensure_ascii=False).encode()


def row(text: bytes, event: str = "update", *, page: int = 1, slot: int = 0) -> Row:
    """Return the state's row for the line."""
    found = read_line(text)
    assert isinstance(found, Described)
    return Row(
        key=found.key,
        page=page,
        slot=slot,
        at_ms=0,
        line=as_event(found.line, event),
        expires_ms=1 if event == "delete" else 0,
    )


def written(path: Path, lines: Iterable[bytes]) -> str:
    path.write_bytes(b"\n".join(lines) + b"\n")
    return str(path)
