"""Encode filters and admissions as attributes, for keys, connections, changes and subscriptions.

A filter is stored as JSON in ASCII, so that it can contain any string. A filter that matches
everything is not stored, and neither is an admission that cannot end.
"""

from __future__ import annotations

import json
from typing import Any

from tidings.aws.dynamodb.attributes import NUMBER, TEXT, Item, Layout, as_text
from tidings.core.model.filters import EVERYTHING, Filter
from tidings.core.settings.values import FOR_GOOD, Admission


def _write(filter_: Filter) -> str:
    fields: dict[str, Any] = {**filter_.values()}
    if filter_.leave:
        fields["leave"] = True
    if filter_.erasures:
        fields["erasures"] = True
    if filter_.redacted:
        fields["veiled"] = True
    if filter_.kinds is not None:
        fields["kinds"] = sorted(filter_.kinds)
    return json.dumps(fields, separators=(",", ":"))


def _read(text: str) -> Filter:
    fields = json.loads(text)
    leave, redacted = fields.pop("leave", False), fields.pop("veiled", False)
    erasures = fields.pop("erasures", False)
    if "kinds" in fields:
        fields["kinds"] = map(tuple, fields["kinds"])
    sets = {name: frozenset(values) for name, values in fields.items()}
    return Filter(**sets, leave=leave, redacted=redacted, erasures=erasures)


FILTER = as_text(_write, _read, EVERYTHING).sparse


_ADMISSION = Layout(
    Admission, key=TEXT.sparse, until=NUMBER.sparse.of("until_ms"), rate=NUMBER.sparse
)

encode_admission = _ADMISSION.encode


def decode_admission(item: Item) -> Admission:
    admission = _ADMISSION.decode(item)
    return admission if admission.may_end else FOR_GOOD
