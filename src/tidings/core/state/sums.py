"""
Sums of the state, by which a consumer knows whether it holds every object (PROTOCOL 20).

The sum of a bucket adds up a digest of each object that lives and of the place of its latest
operation. Adding commutes, so whoever folds the log keeps it by the way, in any order: an object
that comes is added, the one it replaces is taken away. A row that is held twice counts twice, which
an exclusive or would hide.

The follower `state` keeps them. What it added since they were stored is its note, which lies with
its checkpoint: so a turn of few operations writes nothing more than without.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.model.objects import type_prefix

if TYPE_CHECKING:
    from collections.abc import Sequence

SUM_BYTES = 8
MODULO = 1 << 8 * SUM_BYTES
OTHERS = ""  # the sums of all types beyond `limits.SUM_TYPES_MAX`; no type is empty
ALL = frozenset(range(limits.BUCKETS))
Changes = Mapping[tuple[str, int], int]  # by type and bucket, what is to be added

_BUCKETS = struct.Struct(f">{limits.BUCKETS}Q")
_VERSION = struct.Struct(">Q")
_CHANGE = struct.Struct(">BBQ")
_SLOT_BITS = 24  # 6 hex digits
_first_of = struct.Struct(">Q24x").unpack  # the first 8 of 32 bytes
_ZERO = (0,) * limits.BUCKETS


def digest(key: str, page: int, slot: int) -> int:
    """Of the object *key*, whose latest operation stands at (*page*, *slot*) of the log."""
    text = b"%016x%b" % (page << _SLOT_BITS | slot, key.encode())  # the place as an event id ends
    first: int = _first_of(sha256(text).digest())[0]
    return first


def type_of(key: str) -> str:
    """The type of the object *key*, as keys spell it."""
    return key.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Sums:
    """
    The sums of what lives behind page *page*, by type and bucket.

    Nothing is known of the buckets *unknown*; of bucket *at* among them the objects up to the key
    *after* are counted, where it is not None. *version* guards every update: 0 is not stored yet.
    """

    page: int
    types: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    unknown: frozenset[int] = frozenset()
    at: int = 0
    after: str | None = None
    version: int = 0

    @property
    def whole(self) -> list[int | None]:
        """Of all types, by bucket; None where it is not known."""
        totals = [sum(each) % MODULO for each in zip(_ZERO, *self.types.values(), strict=True)]
        return self._known(totals)

    def of(self, name: str) -> list[int | None]:
        """Of the type *name*, likewise; of one that is not kept by itself nothing is known."""
        spelled = type_prefix(name)[:-1]
        if spelled not in self.types and OTHERS in self.types:
            return [None] * limits.BUCKETS
        return self._known(self.types.get(spelled, _ZERO))

    def entry(self, key: str) -> str:
        """Under which type the object *key* counts: its own, while there is room for it."""
        name = type_of(key)
        if name in self.types:
            return name
        room = len(self.types.keys() - {OTHERS}) < limits.SUM_TYPES_MAX
        return name if room else OTHERS

    def with_type(self, name: str) -> Sums:
        """With the type *name*, of which nothing lives yet."""
        return replace(self, types={**self.types, name: _ZERO})

    @property
    def counts_none(self) -> bool:
        """Whether no object is among those that were counted."""
        return self.after is None and self.unknown == ALL

    def counts(self, bucket: int, key: str) -> bool:
        """Whether the object *key* is among those that were counted."""
        if bucket not in self.unknown:
            return True
        return bucket == self.at and self.after is not None and key <= self.after

    def behind(self, page: int, changes: Changes) -> Sums:
        """With *changes*, as of page *page*."""
        types = {name: list(each) for name, each in self.types.items()}
        for (name, bucket), change in changes.items():
            sums = types.setdefault(name, list(_ZERO))
            sums[bucket] = (sums[bucket] + change) % MODULO
        return replace(self, page=page, types={name: tuple(each) for name, each in types.items()})

    def without(self, buckets: frozenset[int]) -> Sums:
        """Nothing is known of *buckets* any more."""
        if not buckets:
            return self
        types = {
            name: tuple(0 if bucket in buckets else each for bucket, each in enumerate(sums))
            for name, sums in self.types.items()
        }
        after = None if self.at in buckets else self.after
        return replace(self, types=types, unknown=self.unknown | buckets, after=after)

    def encode(self) -> bytes:
        """All but the version."""
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
        return Sums(about["page"], types, unknown, about["at"], about["after"], version)

    def _known(self, sums: Sequence[int]) -> list[int | None]:
        return [None if bucket in self.unknown else each for bucket, each in enumerate(sums)]


def note_of(sums: Sums, changes: Changes) -> bytes:
    """*changes* of types that *sums* has, as it is stored; not empty."""
    places = {name: at for at, name in enumerate(sums.types)}
    packed = [_CHANGE.pack(places[of], at, each) for (of, at), each in changes.items()]
    return b"".join([_VERSION.pack(sums.version), *packed])


def changes_in(note: bytes, sums: Sums) -> dict[tuple[str, int], int]:
    """What `note_of` was given."""
    names = list(sums.types)
    changes = _CHANGE.iter_unpack(note[_VERSION.size :])
    return {(names[of], bucket): change for of, bucket, change in changes}


def recalled(stored: Sums | None, note: bytes, checkpoint: int) -> Sums | None:
    """
    The sums that *stored* and *note* add up to, as of *checkpoint* or a page behind it.

    None where they belong to different moments: nobody counted yet, or somebody stored new ones
    between two reads.
    """
    if not note:
        return None
    stored = stored or Sums(0)
    (version,) = _VERSION.unpack_from(note)
    if stored.version == version:
        return stored.behind(max(checkpoint, stored.page), changes_in(note, stored))
    return stored if stored.page >= checkpoint and stored.version else None
