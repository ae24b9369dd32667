"""Documents as operations: what a source holds that knows nothing of feeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidings.pipelines.errors import WrongPipeline
from tidings.pipelines.sources.plain import plain


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
