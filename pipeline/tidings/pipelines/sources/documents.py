"""Documents as operations: what a source holds that knows nothing of feeds."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any

from tidings.pipelines.errors import WrongPipeline

_IN_JSON = (str, int, bool, type(None))


@dataclass(frozen=True, slots=True)
class Documents:
    """Objects of *type* with the field *key* as their id; without a *type* they are operations."""

    type: str
    key: str

    def operation(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """
        Raises:
            WrongPipeline: the key is missing.
        """
        if not self.type:
            return {"event": "insert", **document}
        if document.get(self.key) in (None, ""):
            raise WrongPipeline(f"a document has no {self.key!r}: {sorted(document)}")
        name = str(plain(document[self.key]))
        return {"event": "insert", "type": self.type, "id": name, "data": plain(document)}


def plain(value: Any) -> Any:
    """
    *value* as JSON has it: times as ISO 8601, durations in seconds, bytes as base64.

    What JSON has no type for, exact numbers among it, becomes text.
    """
    if isinstance(value, _IN_JSON):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # JSON has neither NaN nor infinity
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(each) for each in value]
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    return str(value)
