"""Unpacking of deflated bytes up to a limit: a few of them can hold a thousand times as many."""

from __future__ import annotations

import zlib

ZLIB, GZIP = 15, 31  # window bits: with the header of zlib, or that of gzip


def inflate(packed: bytes, bytes_max: int, window_bits: int = ZLIB) -> bytes:
    """
    Return what *packed* holds.

    Raises:
        zlib.error: it is damaged, its end is missing, something follows it, or it holds more than
            *bytes_max*.
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
