"""An admission as attributes of a connection or watch: none where it does not end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidings.aws.dynamodb.items.attributes import Item, number, number_of, text_of, without_empty
from tidings.core.settings.revocations import FOR_GOOD, Admission

if TYPE_CHECKING:
    from collections.abc import Mapping


def encode(admission: Admission) -> Item:
    until = {"until": number(admission.until_ms)} if admission.until_ms else {}
    rate = {"rate": number(admission.rate)} if admission.rate else {}
    return {**without_empty({"key": admission.key}), **until, **rate}


def decode(item: Mapping[str, Any]) -> Admission:
    found = Admission(text_of(item, "key"), number_of(item, "until"), number_of(item, "rate"))
    return found if found.may_end else FOR_GOOD
