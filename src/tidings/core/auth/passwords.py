"""Passwords of a feed, which are stored as salted scrypt hashes and verified once per process.

Clients send the password with every request, and scrypt is slow on purpose. A process therefore
caches the passwords that it has verified, as digests with a key that no other process has.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.errors import InvalidSetting

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SALT_BYTES = 16  # size of a salt, which makes the hashes of equal passwords different
_NAME = "scrypt"
_LOG_N, _R, _P = 12, 8, 1  # a hash takes 4 MB and 15 ms, or 50 ms in a function with 512 MB
_KEY_BYTES = 32  # the output size of SHA-256, which scrypt uses
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class _Hash:
    """A parsed hash. It contains the parameters of scrypt, so that the defaults may change."""

    log_n: int
    r: int
    p: int
    set_ms: int
    salt: bytes
    key: bytes


def check_password(password: str) -> str:
    """Return *password* if it may be set.

    Raises:
        InvalidSetting: *password* is too short, too long, or contains a control character.
    """
    size = len(_bytes(password))
    if not limits.PASSWORD_BYTES_MIN <= size <= limits.PASSWORD_BYTES_MAX:
        bounds = f"{limits.PASSWORD_BYTES_MIN} to {limits.PASSWORD_BYTES_MAX} bytes"
        raise InvalidSetting(f"must have {bounds}, has {size}", field="password")
    if _CONTROL.search(password):
        raise InvalidSetting("must not contain control characters", field="password")
    return password


def from_line(text: str) -> str:
    """Return the password on the single line *text*, without its line end.

    Raises:
        InvalidSetting: the password may not be set.
    """
    return check_password(text.removesuffix("\n").removesuffix("\r"))


def hash_password(password: str, *, salt: bytes, now_ms: int) -> str:
    """Return the text to store for *password*; *salt* must be fresh and random."""
    key = _derive(_bytes(password), salt, _LOG_N, _R, _P)
    return "$".join((_NAME, f"{_LOG_N}", f"{_R}", f"{_P}", f"{now_ms}", _text(salt), _text(key)))


def set_at_ms(stored: str) -> int:
    """Return the time in ms at which the password with the hash *stored* was set."""
    return _parse(stored).set_ms


def is_password_of(password: bytes, stored: str) -> bool:
    """Return True if *password* has the hash *stored*."""
    parts = _parse(stored)
    key = _derive(password, parts.salt, parts.log_n, parts.r, parts.p)
    return hmac.compare_digest(key, parts.key)


class Verifier:
    """A verifier of passwords against stored hashes. *key* is random and private to this process.

    Only correct passwords are cached, so that wrong passwords cannot evict correct ones. *check*
    compares a password with one hash.
    """

    def __init__(self, key: bytes, check: Callable[[bytes, str], bool] = is_password_of) -> None:
        self._key, self._check = key, check
        # A server looks up passwords in its event loop, which must not wait for a lock. No lock is
        # needed, because each call on this dictionary is atomic.
        self._known: OrderedDict[bytes, None] = OrderedDict()

    def remembers(self, password: str, stored: Sequence[str]) -> bool:
        """Return True if *password* was verified against *stored* before, without a slow hash."""
        given = _bytes(password)
        return any([self._is_cached(self._digest(given, each)) for each in stored])

    def matches(self, password: str, stored: Sequence[str]) -> bool:
        """Return True if *password* matches one of the *stored* hashes."""
        given = _bytes(password)
        if len(given) > limits.PASSWORD_BYTES_MAX or b"\0" in given:
            return False  # scrypt pads with NULs, so NULs at the end of *password* would not count
        digests = [self._digest(given, each) for each in stored]
        return any(map(self._is_cached, digests)) or any(
            [self._verify(given, *pair) for pair in zip(stored, digests, strict=True)]
        )

    def _verify(self, given: bytes, stored: str, digest: bytes) -> bool:
        if not self._check(given, stored):
            return False
        self._known[digest] = None
        while len(self._known) > limits.VERIFIED_MAX:
            with suppress(KeyError):  # another thread has emptied the cache
                self._known.popitem(last=False)
        return True

    def _is_cached(self, digest: bytes) -> bool:
        try:
            self._known.move_to_end(digest)
        except KeyError:
            return False
        return True

    def _digest(self, given: bytes, stored: str) -> bytes:
        """Return the key in the cache: a digest of the password and the stored hash."""
        return hmac.digest(self._key, stored.encode() + b"\0" + given, "sha256")


def _derive(password: bytes, salt: bytes, log_n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(password, salt=salt, n=1 << log_n, r=r, p=p, dklen=_KEY_BYTES)


def _parse(stored: str) -> _Hash:
    _, log_n, r, p, set_ms, salt, key = stored.split("$")
    return _Hash(int(log_n), int(r), int(p), int(set_ms), _raw(salt), _raw(key))


def _bytes(password: str) -> bytes:
    """Encode *password*. JSON can contain lone surrogates, which must not equal other text."""
    return password.encode("utf-8", "surrogatepass")


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _raw(text: str) -> bytes:
    return base64.b64decode(text)
