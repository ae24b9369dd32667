"""Decode operations of ordinary shape with `msgspec`, which may not be installed.

This module describes only the names and the types of an operation's fields; `operations` has the
rules for their values. If a decoder of this module rejects a body, the decoder of `json_body`
parses the body again.
"""

from __future__ import annotations

from msgspec import MsgspecError, Raw, Struct
from msgspec.json import Decoder, Encoder

# The decoders raise these errors for invalid JSON or other fields, for invalid UTF-8, and for deep
# nesting.
REJECTED = (MsgspecError, UnicodeDecodeError, RecursionError)


class Fields(Struct, forbid_unknown_fields=True, gc=False):
    """The fields of an operation. *data* is JSON that is not decoded, or b"" if it is missing."""

    event: str
    type: str
    id: str
    timestamp: str | None = None
    parents: list[str] | None = None
    tags: list[str] | None = None
    changed: list[str] | None = None
    data: Raw = Raw()


def is_canonical(text: bytes) -> bool:
    """Return True if the JSON *text* is certainly spelled as `to_canonical_json` spells its value.

    A text that is the same after decoding and encoding has no spaces, no repeated names and no
    unusual spelling of an integer. Return False for a text with escapes and for a text with floats
    that Python spells in another way, because `msgspec` and the log spell these differently.
    """
    try:
        return b"\\" not in text and text != b"null" and _encode(_decode(text)) == text
    except (*REJECTED, ValueError, TypeError, OverflowError):
        return False


def _short_float(text: str) -> float:
    """Return *text* as a float if Python spells the float as in *text*."""
    value = float(text)
    if repr(value) != text:
        raise ValueError
    return value


decode_one = Decoder(Fields).decode
decode_array = Decoder(list[Raw]).decode
_decode = Decoder(float_hook=_short_float).decode
_encode = Encoder().encode
