"""
The sums of the state of each feed on DynamoDB, in the control table.

Key: `sums#<feed>`, and the version modulo `_RING`: each of the last `_RING` versions has an item.
`version` guards it. If `whole`, `body` is `Sums.encode`; otherwise it is the `note_of` the changes
since the previous version, and `page` is the end of these changes.

All sums of nine types take five write units, the changes since the previous version one. So a whole
version is written once in `_RING` versions, or if it is shorter than the changes.
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

_RING = 8  # items that one query reads: two read units, at most some 10 KB
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
        except ConditionFailed as failed:  # our own write, if its answer was lost
            there = failed.item or {}
            return all(there.get(name[1:]) == value for name, value in values.items())
        return True


def _added_up(items: Iterable[Item]) -> Sums | None:
    """Return the latest version in *items*; an earlier one if they changed during the query."""
    sums = None
    for item in sorted(items, key=lambda each: number_of(each, "version")):
        version, body = number_of(item, "version"), bytes_of(item["body"])
        if item["whole"]["BOOL"]:
            sums = Sums.decode(body, version)
        elif sums is not None and sums.version == version - 1:
            changed = sums.with_changes(number_of(item, "page"), changes_in(body, sums))
            sums = replace(changed, version=version)
    return sums
