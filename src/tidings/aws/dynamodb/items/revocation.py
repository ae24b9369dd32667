"""An admission as attributes of a connection or watch: none where it does not end."""

from __future__ import annotations

from tidings.aws.dynamodb.items.attributes import NUMBER, TEXT, Item, Layout
from tidings.core.settings.revocations import FOR_GOOD, Admission

_LAYOUT = Layout(Admission, key=TEXT.sparse, until=NUMBER.sparse.of("until_ms"), rate=NUMBER.sparse)

encode = _LAYOUT.encode


def decode(item: Item) -> Admission:
    admission = _LAYOUT.decode(item)
    return admission if admission.may_end else FOR_GOOD
