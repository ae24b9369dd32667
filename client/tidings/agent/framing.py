"""Many datagrams as one value of the queue: their count, their lengths, their bytes."""

from __future__ import annotations

import struct
from collections.abc import Sequence

_COUNT = struct.Struct("<I")


def pack(datagrams: Sequence[bytes]) -> bytes:
    """A datagram may hold any byte, so no separator would do."""
    lengths = struct.pack(f"<{len(datagrams)}I", *map(len, datagrams))
    return b"".join((_COUNT.pack(len(datagrams)), lengths, *datagrams))


def unpack(packed: bytes) -> list[bytes]:
    """What `pack` was given."""
    (count,) = _COUNT.unpack_from(packed)
    at = _COUNT.size + 4 * count
    datagrams = []
    for length in struct.unpack_from(f"<{count}I", packed, _COUNT.size):
        datagrams.append(packed[at : at + length])
        at += length
    return datagrams
