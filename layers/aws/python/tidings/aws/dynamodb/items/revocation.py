"""An admission as attributes of a connection or watch: none where it does not end."""

from __future__ import annotations

from tidings.aws.dynamodb.items.attributes import Item, number, number_of, text_of, without_empty
from tidings.core.settings.revocations import FOR_GOOD, Admission


def encode(admission: Admission) -> Item:
    until = {"until": number(admission.until_ms)} if admission.until_ms else {}
    rate = {"rate": number(admission.rate)} if admission.rate else {}
    return {**without_empty({"key": admission.key}), **until, **rate}


def decode(item: Item) -> Admission:
    admission = Admission(text_of(item, "key"), number_of(item, "until"), number_of(item, "rate"))
    return admission if admission.may_end else FOR_GOOD
