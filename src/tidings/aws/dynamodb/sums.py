"""
The sums of the state of each feed on DynamoDB, in the control table.

Key: `sums#<feed>`, and the place of a version in the ring: of the last `_RING` versions each has an
item. `version` guards it. `body` is `Sums.encode` where `whole` is, else the `note_of` what changed
since the version before, and `page` is where that ends.

All sums of nine types take five write units, what changed since the last version one: so a whole
version is written once in `_RING`, or where it is the shorter one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidings.aws.dynamodb.attributes import Item, bytes_of, number, number_of, text
from tidings.aws.dynamodb.transport.table import TableStore
from tidings.aws.runtime.aws_errors import ConditionFailed
from tidings.core.state.sums import Sums, changes_in

if TYPE_CHECKING:
    from collections.abc import Iterable

_RING = 8  # items that a reader takes together: two units to read, some 10 KB at most
_UNWRITTEN = "attribute_not_exists(#version) OR #version < :version"
_SET = "SET #version = :version, #page = :page, #whole = :whole, #body = :body"


def item_key(feed: str, version: int) -> Item:
    return {"kind": text(f"sums#{feed}"), "name": text(str(version % _RING))}


class DynamoDBSums(TableStore):
    """Implements `SumStore`."""

    def read(self, feed: str) -> Sums | None:
        return _added_up(self._table.of_kind(f"sums#{feed}"))

    def write(self, feed: str, sums: Sums, note: bytes = b"") -> bool:
        body = sums.encode()
        whole = not note or sums.version % _RING == 0 or len(note) >= len(body)
        values: Item = {
            ":version": number(sums.version),
            ":page": number(sums.page),
            ":whole": {"BOOL": whole},
            ":body": {"B": body if whole else note},
        }
        try:
            self._table.update(item_key(feed, sums.version), _SET, values, _UNWRITTEN)
        except ConditionFailed as failed:  # perhaps by ourselves, and the answer was lost
            there = failed.item or {}
            return all(there.get(name[1:]) == value for name, value in values.items())
        return True


def _added_up(items: Iterable[Item]) -> Sums | None:
    """The last version of *items*; one before it where they were changed while they were read."""
    sums = None
    for item in sorted(items, key=lambda each: number_of(each, "version")):
        version, body = number_of(item, "version"), bytes_of(item["body"])
        if item["whole"]["BOOL"]:
            sums = Sums.decode(body, version)
        elif sums is not None and sums.version == version - 1:
            changed = sums.with_changes(number_of(item, "page"), changes_in(body, sums))
            sums = replace(changed, version=version)
    return sums
