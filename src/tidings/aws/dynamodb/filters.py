"""Encode filters and admissions as attributes, for keys, connections, changes and subscriptions.

A filter that matches everything is not stored, and neither is an admission that cannot end.
"""

from __future__ import annotations

from tidings.aws.dynamodb.attributes import NUMBER, TEXT, Item, Layout, as_text
from tidings.core.model.filters import EVERYTHING, from_text, to_text
from tidings.core.settings.values import FOR_GOOD, Admission

FILTER = as_text(to_text, from_text, EVERYTHING).sparse


_ADMISSION = Layout(
    Admission, key=TEXT.sparse, until=NUMBER.sparse.of("until_ms"), rate=NUMBER.sparse
)

encode_admission = _ADMISSION.encode


def decode_admission(item: Item) -> Admission:
    admission = _ADMISSION.decode(item)
    return admission if admission.may_end else FOR_GOOD
