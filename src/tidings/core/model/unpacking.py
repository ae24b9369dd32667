"""Inflate compressed bytes up to a limit, because they may expand a thousandfold."""

from __future__ import annotations

import zlib

ZLIB, GZIP = 15, 31  # window bits: with a zlib header, or with a gzip header


def inflate(packed: bytes, bytes_max: int, window_bits: int = ZLIB) -> bytes:
    """
    Return *packed* inflated.

    Raises:
        zlib.error: the data is damaged, truncated, followed by other bytes, or larger than
            *bytes_max* when inflated.
    """
    unpacking = zlib.decompressobj(window_bits)
    plain = unpacking.decompress(packed, bytes_max + 1)
    if len(plain) > bytes_max:
        raise zlib.error(f"it holds more than {bytes_max} bytes")
    if not unpacking.eof:
        raise zlib.error("its end is missing")
    if unpacking.unused_data:
        raise zlib.error("something follows its end")
    return plain
