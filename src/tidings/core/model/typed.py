"""
Decode operations of ordinary shape with `msgspec`, which may not be installed.

This module describes only the shape; `operations` has the rules for the content. If a body is
rejected here, because it is invalid or unusual, the decoder of `json_body` parses it.
"""

from __future__ import annotations

from msgspec import MsgspecError, Raw, Struct
from msgspec.json import Decoder, Encoder

# The errors of the decoders for invalid JSON or another shape, invalid UTF-8, and deep nesting.
REJECTED = (MsgspecError, UnicodeDecodeError, RecursionError)


class Fields(Struct, forbid_unknown_fields=True, gc=False):
    """The fields of an operation. *data* is not decoded, and is b"" if it is missing."""

    event: str
    type: str
    id: str
    timestamp: str | None = None
    parents: list[str] | None = None
    tags: list[str] | None = None
    changed: list[str] | None = None
    data: Raw = Raw()


def is_canonical(text: bytes) -> bool:
    """
    Return True if the JSON *text* is certainly spelled as the log stores it.

    Text that decodes and encodes to itself has no spaces, no repeated names and no other spelling
    of an integer. Escapes and floats, which the log spells otherwise than `msgspec`, are excluded.
    """
    try:
        return b"\\" not in text and text != b"null" and _encode(_decode(text)) == text
    except (*REJECTED, ValueError, TypeError, OverflowError):
        return False


def _short_float(text: str) -> float:
    """
    Return the float that *text* spells as Python does.

    Raises:
        ValueError: Python spells it otherwise.
    """
    value = float(text)
    if repr(value) != text:
        raise ValueError
    return value


decode_one = Decoder(Fields).decode
decode_array = Decoder(list[Raw]).decode
_decode = Decoder(float_hook=_short_float).decode
_encode = Encoder().encode
