"""
Decode operations of ordinary shape with `msgspec`, which may not be installed.

This module describes only the shape of an operation; `operations` has the rules for the content. If
a decoder of this module rejects a body as invalid or unusual, the decoder of `json_body` parses the
body again.
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

    A text that is the same after decoding and encoding has no spaces, no repeated names and no
    unusual spelling of an integer. Texts with escapes, and texts with floats that Python spells in
    another way, are excluded, because the log spells these in another way than `msgspec`.
    """
    try:
        return b"\\" not in text and text != b"null" and _encode(_decode(text)) == text
    except (*REJECTED, ValueError, TypeError, OverflowError):
        return False


def _short_float(text: str) -> float:
    """
    Return the float *text* if Python spells the float in the same way.

    Raises:
        ValueError: Python spells the float in another way.
    """
    value = float(text)
    if repr(value) != text:
        raise ValueError
    return value


decode_one = Decoder(Fields).decode
decode_array = Decoder(list[Raw]).decode
_decode = Decoder(float_hook=_short_float).decode
_encode = Encoder().encode
