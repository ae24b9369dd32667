"""
A filter as an attribute of a key, connection, change or watch.

JSON in ASCII, so that any string a client may send can be stored; none where everything is
wanted.
"""

from __future__ import annotations

import json
from typing import Any

from tidings.aws.dynamodb.items.attributes import as_text
from tidings.core.model.filters import EVERYTHING, Filter


def _write(filter_: Filter) -> str:
    fields: dict[str, Any] = {**filter_.values()}
    if filter_.leave:
        fields["leave"] = True
    if filter_.veiled:
        fields["veiled"] = True
    if filter_.kinds is not None:
        fields["kinds"] = sorted(filter_.kinds)
    return json.dumps(fields, separators=(",", ":"))


def _read(text: str) -> Filter:
    fields = json.loads(text)
    leave, veiled = fields.pop("leave", False), fields.pop("veiled", False)
    if "kinds" in fields:
        fields["kinds"] = map(tuple, fields["kinds"])
    sets = {name: frozenset(values) for name, values in fields.items()}
    return Filter(**sets, leave=leave, veiled=veiled)


FILTER = as_text(_write, _read, EVERYTHING).sparse
