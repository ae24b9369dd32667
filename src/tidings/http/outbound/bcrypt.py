"""bcrypt, by the library most used for it: the standard library has none."""

from __future__ import annotations

import bcrypt


def matches(password: bytes, stored: bytes) -> bool:
    """Implements `CheckBcrypt`."""
    try:
        return bcrypt.checkpw(password, stored)
    except ValueError:  # what cannot be a password of anybody
        return False
