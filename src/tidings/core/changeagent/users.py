"""The users of a feed, stored as an htpasswd file with bcrypt hashes, and their authentication.

A feed without users is protected by its passwords alone (`auth.guard`).
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.auth.guard import Allowed
from tidings.core.auth.passwords import Verifier
from tidings.core.changeagent.documents import USERS
from tidings.core.errors import InvalidSetting, WrongUser

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidings.core.auth.guard import Credential, FailedAttemptLimiter, Guard, Need
    from tidings.core.changeagent.documents import OperatorDocuments


# A function that returns True if its second argument is the bcrypt hash of its first argument, a
# password of at most 72 bytes.
CheckBcrypt = Callable[[bytes, bytes], bool]
_HASH = re.compile(r"\$2[aby]\$([0-9]{2})\$[./A-Za-z0-9]{53}", re.ASCII)
_COST_MIN = 4
_BCRYPT_BYTES = 72  # bcrypt ignores all further bytes of a password


def users_from(text: str) -> dict[str, str]:
    """Return the hash of each user in an htpasswd file. Blank lines and `#` comments are ignored.

    Raises:
        InvalidSetting: a line breaks a rule. The error has the line number, but never a hash.
    """
    if len(text.encode("utf-8", "surrogatepass")) > limits.DOCUMENT_BYTES_MAX:
        raise InvalidSetting(f"holds at most {limits.DOCUMENT_BYTES_MAX} bytes", field="file")
    users: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            name, stored = _user(line.strip(), f"line {number}")
            if name in users:
                rule = "this user occurs more than once"
                raise InvalidSetting(rule, field=f"line {number}", value=name)
            users[name] = stored
    if not users:
        raise InvalidSetting("must have at least one user", field="file")
    if len(users) > limits.USERS_MAX:
        raise InvalidSetting(f"holds at most {limits.USERS_MAX} users", field="file")
    return users


def _user(line: str, where: str) -> tuple[str, str]:
    name, colon, stored = line.partition(":")
    if not (name and colon):
        raise InvalidSetting("must be a user, a colon and a hash", field=where)
    hashed = _HASH.fullmatch(stored)
    if hashed is None:
        raise InvalidSetting("must be a bcrypt hash ($2a$, $2b$ or $2y$)", field=where, value=name)
    if not _COST_MIN <= int(hashed[1]) <= limits.BCRYPT_COST_MAX:
        rule = f"must have a cost of {_COST_MIN} to {limits.BCRYPT_COST_MAX}, has {hashed[1]}"
        raise InvalidSetting(rule, field=where, value=name)
    return name, stored


def encode_users(users: dict[str, str]) -> str:
    """Return the stored form of *users*: an htpasswd file without comments."""
    return "".join(f"{name}:{stored}\n" for name, stored in users.items())


class UserVerifier(Verifier):
    """A verifier of passwords against bcrypt hashes. *key* is random and private to the process."""

    def __init__(self, bcrypt: CheckBcrypt, key: bytes) -> None:
        super().__init__(key, lambda given, stored: bcrypt(given[:_BCRYPT_BYTES], stored.encode()))

    def some(self, name: str, hashes: Sequence[str]) -> str:
        """Return one of *hashes*, always the same for *name*.

        The check of an unknown user then takes as long as the check of a known user.
        """
        digest = hmac.digest(self._key, name.encode("utf-8", "surrogatepass"), "sha256")
        return hashes[int.from_bytes(digest[:8]) % len(hashes)]


@dataclass(frozen=True, slots=True)
class UserAuthenticator:
    """The authenticator for changes. It accepts the users of a feed, and keys and tokens.

    If the feed has no users, the authenticator accepts the passwords of the feed instead. The check
    of an unknown user takes as long as the check of a wrong password, and both count as failed
    attempts.
    """

    operator_documents: OperatorDocuments
    guard: Guard
    verifier: UserVerifier
    failures: FailedAttemptLimiter

    def check(self, feed: str, need: Need, given: Credential | None) -> Allowed:
        """Return the permissions that *given* has for *need*. A user may do everything.

        Raises:
            WrongUser: the feed has users, and *given* is not one of them.
            TooManyRequests: there were too many failed attempts just before.
            NoPasswordSet, WrongPassword, WrongKey, OutsideKey: see `Guard.check`, which checks keys
                and, if the feed has no users, passwords.
        """
        text = self.operator_documents.operator_document(feed, USERS).text
        if not text or self.guard.knows(given):
            return need.admit(self.guard, feed, given)
        stored = dict(line.split(":", 1) for line in text.splitlines())
        if given is None or not self._is_one(feed, stored, given):
            raise WrongUser("must be a user of the feed, with the user's password", field="user")
        # A digest, because the name may have any length and any characters.
        name = f"user\0{given.user}".encode("utf-8", "surrogatepass")
        return Allowed(principal=hashlib.sha256(name).hexdigest())

    def _is_one(self, feed: str, stored: Mapping[str, str], given: Credential) -> bool:
        known = stored.get(given.user)
        if known is not None and self.verifier.remembers(given.secret, [known]):
            return True
        self.failures.check(feed)
        against = known or self.verifier.some(given.user, list(stored.values()))
        if self.verifier.matches(given.secret, [against]) and known is not None:
            return True
        self.failures.add(feed)
        return False
