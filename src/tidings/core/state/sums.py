"""Sums of the state, with which a consumer verifies that it has every object (PROTOCOL 20).

The sum of a bucket adds up one digest for each live object. The digest is computed from the key of
the object and the position of its latest operation. A consumer that reads the log can maintain the
sums. For each operation, it adds the digest of the new operation and subtracts the digest of the
replaced operation, in any order. A row that is stored twice counts
twice, whereas XOR instead of addition would hide the error.

The follower `state` maintains the sums. Its note, which is stored with its checkpoint, has the
changes since the sums were stored, so that a small batch needs no additional write.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Protocol

from tidings.core import limits
from tidings.core.model.feeds import STATE
from tidings.core.model.operations import type_prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tidings.core.followers.leases import FollowerStore

SUM_BYTES = 8
MODULO = 1 << 8 * SUM_BYTES
OTHERS = ""  # used instead of a type name, for all types beyond `limits.SUM_TYPES_MAX`
ALL = frozenset(range(limits.BUCKETS))
Changes = Mapping[tuple[str, int], int]  # the amounts to add, by type and bucket

_BUCKETS = struct.Struct(f">{limits.BUCKETS}Q")
_VERSION = struct.Struct(">Q")
_CHANGE = struct.Struct(">BBQ")
_SLOT_BITS = 24  # a slot has 6 hex digits
_first_of = struct.Struct(">Q24x").unpack  # the first 8 of 32 bytes
_ZERO = (0,) * limits.BUCKETS


def digest(key: str, page: int, slot: int) -> int:
    """Return the digest of the object *key* with its latest operation at (*page*, *slot*)."""
    text = b"%016x%b" % (page << _SLOT_BITS | slot, key.encode())  # the place as in an event id
    first: int = _first_of(sha256(text).digest())[0]
    return first


def type_of(key: str) -> str:
    """Return the type in the object key *key*, with the escapes of the key."""
    return key.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Sums:
    """The sums of the live objects as of page *page*, by type and bucket.

    The sums of the buckets *unknown* are not known. One of these buckets, *at*, is being counted:
    its objects up to the key *after* are counted, or none of them if *after* is None. A write is
    rejected if *version* has changed in the meantime. Sums that were not stored yet have version 0.
    """

    page: int
    types: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    unknown: frozenset[int] = frozenset()
    at: int = 0
    after: str | None = None
    version: int = 0

    @property
    def totals(self) -> list[int | None]:
        """Return the sums of all types by bucket, which are None for unknown buckets."""
        totals = [sum(each) % MODULO for each in zip(_ZERO, *self.types.values(), strict=True)]
        return self._mask_unknown(totals)

    def of(self, name: str) -> list[int | None]:
        """Return the sums of the type *name* by bucket; all None if the type counts as `OTHERS`."""
        spelled = type_prefix(name)[:-1]
        if spelled not in self.types and OTHERS in self.types:
            return [None] * limits.BUCKETS
        return self._mask_unknown(self.types.get(spelled, _ZERO))

    def entry(self, key: str) -> str:
        """Return the type under which *key* counts, `OTHERS` if there are too many types."""
        name = type_of(key)
        if name in self.types:
            return name
        room = len(self.types.keys() - {OTHERS}) < limits.SUM_TYPES_MAX
        return name if room else OTHERS

    def with_type(self, name: str) -> Sums:
        """Return the sums with the type *name*, which has no objects yet."""
        return replace(self, types={**self.types, name: _ZERO})

    @property
    def counts_none(self) -> bool:
        """Return True if no object was counted."""
        return self.after is None and self.unknown == ALL

    def counts(self, bucket: int, key: str) -> bool:
        """Return True if the object *key* was counted."""
        if bucket not in self.unknown:
            return True
        return bucket == self.at and self.after is not None and key <= self.after

    def with_changes(self, page: int, changes: Changes) -> Sums:
        """Return the sums with *changes*, as of page *page*."""
        types = {name: list(each) for name, each in self.types.items()}
        for (name, bucket), change in changes.items():
            sums = types.setdefault(name, list(_ZERO))
            sums[bucket] = (sums[bucket] + change) % MODULO
        return replace(self, page=page, types={name: tuple(each) for name, each in types.items()})

    def without(self, buckets: frozenset[int]) -> Sums:
        """Return the sums with *buckets* marked as unknown."""
        if not buckets:
            return self
        types = {
            name: tuple(0 if bucket in buckets else each for bucket, each in enumerate(sums))
            for name, sums in self.types.items()
        }
        after = None if self.at in buckets else self.after
        return replace(self, types=types, unknown=self.unknown | buckets, after=after)

    def encode(self) -> bytes:
        """Return everything except the version as bytes."""
        about = {
            "page": self.page,
            "types": list(self.types),
            "unknown": sorted(self.unknown),
            "at": self.at,
            "after": self.after,
        }
        sums = [_BUCKETS.pack(*each) for each in self.types.values()]
        return b"\n".join([json.dumps(about, separators=(",", ":")).encode(), b"".join(sums)])

    @staticmethod
    def decode(body: bytes, version: int) -> Sums:
        head, _, rest = body.partition(b"\n")
        about = json.loads(head)
        types = dict(zip(about["types"], _BUCKETS.iter_unpack(rest), strict=True))
        unknown = frozenset(about["unknown"])
        return Sums(
            page=about["page"],
            types=types,
            unknown=unknown,
            at=about["at"],
            after=about["after"],
            version=version,
        )

    def _mask_unknown(self, sums: Sequence[int]) -> list[int | None]:
        return [None if bucket in self.unknown else each for bucket, each in enumerate(sums)]


class SumStore(Protocol):
    """The stored sums of the state of each feed."""

    def read(self, feed: str) -> Sums | None:
        """Return the stored sums, or None, strongly consistent."""

    def write(self, feed: str, sums: Sums, note: bytes = b"") -> bool:
        """Store *sums* if the stored version is `sums.version - 1`; return False otherwise.

        *note* is the result of `note_of` for all changes since the stored version, or empty if a
        note cannot express them. A store may write the note instead of the sums.
        """


def note_of(sums: Sums, changes: Changes) -> bytes:
    """Encode *changes* as a note that is never empty. *sums* must have all types of *changes*."""
    version = _VERSION.pack(sums.version)
    if not changes:
        return version
    places = {name: at for at, name in enumerate(sums.types)}
    packed = [_CHANGE.pack(places[of], at, each) for (of, at), each in changes.items()]
    return b"".join([version, *packed])


def changes_in(note: bytes, sums: Sums) -> dict[tuple[str, int], int]:
    """Decode the changes in *note*, which `note_of` has encoded for *sums*."""
    names = list(sums.types)
    changes = _CHANGE.iter_unpack(note[_VERSION.size :])
    return {(names[of], bucket): change for of, bucket, change in changes}


def recall_sums(stored: Sums | None, note: bytes, checkpoint: int) -> Sums | None:
    """Return *stored* with the changes in *note*, as of *checkpoint* or a later page.

    Return None if no object was counted yet. If *note* does not belong to *stored*, because another
    process stored new sums after *note* was read, return *stored* unchanged, or None if its page is
    before *checkpoint*.
    """
    if not note:
        return None
    stored = stored or Sums(0)
    (version,) = _VERSION.unpack_from(note)
    if stored.version == version:
        return stored.with_changes(max(checkpoint, stored.page), changes_in(note, stored))
    return stored if stored.page >= checkpoint and stored.version else None


@dataclass(frozen=True, slots=True)
class PageSums:
    """The sums of the state as of page *page* by bucket, which are None for unknown buckets."""

    page: int
    sums: Sequence[int | None]

    def to_json(self) -> dict[str, Any]:
        """Return the sums as in a response."""
        sums = [None if each is None else f"{each:0{2 * SUM_BYTES}x}" for each in self.sums]
        return {"page": self.page, "sums": sums}

    @staticmethod
    def from_json(document: Any) -> PageSums:
        """Parse a response.

        Raises:
            KeyError, TypeError, ValueError: *document* is not a result of `to_json`.
        """
        sums = [None if each is None else int(each, 16) for each in document["sums"]]
        if len(sums) != limits.BUCKETS:
            raise ValueError(f"there are {len(sums)} sums instead of {limits.BUCKETS}")
        return PageSums(int(document["page"]), sums)

    def differing(self, sums: Sequence[int | None]) -> list[int]:
        """Return the buckets for which both sums are known and differ."""
        pairs = enumerate(zip(self.sums, sums, strict=True))
        return [bucket for bucket, (one, two) in pairs if None not in (one, two) and one != two]


@dataclass(frozen=True, slots=True)
class SumReader:
    """A reader of the sums of feeds; *on_read* is called with each feed that is read."""

    store: SumStore
    followers: FollowerStore
    on_read: Callable[[str], None] = lambda feed: None

    def read(self, feed: str) -> Sums:
        """Return the sums as of the last page that the follower `state` handled, or a later page.

        Read the checkpoint first: sums that are stored between the two reads are then of a later
        page.
        """
        self.on_read(feed)
        for lease in self.followers.leases(feed):
            if lease.name == STATE:
                sums = recall_sums(self.store.read(feed), lease.note, lease.checkpoint)
                return sums or Sums(lease.checkpoint, unknown=ALL)
        return Sums(0)


def of_types(sums: Sums, types: Iterable[str] | None) -> list[int | None]:
    """Return the total sum of *types* (None: all types) by bucket; None in unknown buckets."""
    if types is None:
        return sums.totals
    each = [sums.of(name) for name in types]
    return [_together([of[bucket] for of in each]) for bucket in range(limits.BUCKETS)]


def _together(sums: list[int | None]) -> int | None:
    known = [each for each in sums if each is not None]
    return sum(known) % MODULO if len(known) == len(sums) else None
