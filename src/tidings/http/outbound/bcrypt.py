"""Check bcrypt hashes with the `bcrypt` library: the standard library has no bcrypt."""

from __future__ import annotations

import bcrypt


def matches(password: bytes, stored: bytes) -> bool:
    """Implements `CheckBcrypt`."""
    try:
        return bcrypt.checkpw(password, stored)
    except ValueError:  # the bytes cannot be a password
        return False
