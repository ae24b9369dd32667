"""The operations on settings, passwords and users, by an operator with access to the stores.

None has a route: over HTTP, they would let a credential give more rights than it has. A stage does
not have them either; the commands of its operators use its stores.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from tidings.core import limits
from tidings.core.auth.guard import PASSWORD_ROLES, Role, passwords_of
from tidings.core.auth.passwords import SALT_BYTES, hash_password, set_at_ms
from tidings.core.changeagent.documents import USERS
from tidings.core.changeagent.users import encode_users, users_from
from tidings.core.errors import InvalidSetting
from tidings.core.model.feeds import public_name
from tidings.core.model.timestamps import from_ms
from tidings.core.records import until_saved
from tidings.core.settings.documents import profile_fields, settings_document
from tidings.core.settings.profiles import close, validate
from tidings.http import wire
from tidings.http.endpoints.feeds import FeedSettings
from tidings.http.wire import Call, Given, Kind

if TYPE_CHECKING:
    from tidings.core.changeagent.documents import OperatorDocuments
    from tidings.core.effects import Clock
    from tidings.core.settings.profiles import Profile, ProfileStore

_ROLE = wire.one_of(*(role.value for role in PASSWORD_ROLES))


class NewPassword(Given):
    role: Annotated[str, _ROLE]
    password: Annotated[str, Kind(wire.TEXT, shown=False)]
    keep_old: Annotated[bool, "keep the current password valid as well"] | None = None


class PasswordRemoval(Given):
    role: Annotated[str, _ROLE]
    only_old: bool | None = None


class UsersFile(Given):
    file: Annotated[str, Kind(wire.PLAIN, shown=False)]


def with_passwords(profile: Profile, role: Role, stored: tuple[str, ...]) -> Profile:
    """Return *profile* with the password hashes *stored* of *role*, the newest first."""
    changed: Any = {f"{role.value}_passwords": stored}
    return replace(profile, **changed)


def settings_json(feed: str, profile: Profile) -> dict[str, Any]:
    """Return all settings as JSON, without the hashes."""
    passwords = {
        f"{role.value}_passwords": [
            {"set_at": from_ms(set_at_ms(stored))} for stored in passwords_of(profile, role)
        ]
        for role in PASSWORD_ROLES
    }
    shown = {"feed": public_name(feed), **settings_document(profile), "closed": profile.closed}
    return {**shown, **passwords, "version": profile.version}


@dataclass(frozen=True)
class LocalAdmin(wire.Routes, function="", error=InvalidSetting):
    """The settings, the passwords and the users of a feed or of the host."""

    profiles: ProfileStore
    documents: OperatorDocuments
    clock: Clock

    @wire.local("/feeds/{feed}/settings")
    def show_settings(self, call: Call) -> dict[str, Any]:
        """Return all settings of a feed."""
        return settings_json(call.feed, self.profiles.profile(call.feed))

    @wire.local("/feeds/{feed}/settings")
    def change_settings(self, call: Call, body: FeedSettings) -> dict[str, Any]:
        """Change the given settings of a feed."""
        fields = profile_fields(body.sent, call.feed)
        return self._change(call.feed, lambda old: replace(old, **fields))

    @wire.local("/feeds/{feed}/passwords")
    def set_password(self, call: Call, body: NewPassword) -> dict[str, Any]:
        """Set a password; only its hash is stored."""
        role = Role(body.role)
        stored = hash_password(body.password, salt=os.urandom(SALT_BYTES), now_ms=self.clock())

        def change(old: Profile) -> Profile:
            kept = passwords_of(old, role) if body.keep_old else ()
            return with_passwords(old, role, (stored, *kept)[: limits.PASSWORDS_MAX])

        return self._change(call.feed, change)

    @wire.local("/feeds/{feed}/passwords")
    def remove_passwords(self, call: Call, body: PasswordRemoval) -> dict[str, Any]:
        """Remove all passwords of a role, or with `only_old` all but the newest."""
        role, kept = Role(body.role), 1 if body.only_old else 0
        return self._change(
            call.feed, lambda old: with_passwords(old, role, passwords_of(old, role)[:kept])
        )

    @wire.local("/feeds/{feed}/users")
    def list_users(self, call: Call) -> dict[str, Any]:
        """Return the names of the users."""
        text = self.documents.operator_document(call.feed, USERS).text
        return {"users": [line.partition(":")[0] for line in text.splitlines()]}

    @wire.local("/feeds/{feed}/users")
    def import_users(self, call: Call, body: UsersFile) -> dict[str, Any]:
        """Replace the users by those in a file of htpasswd."""
        parsed = users_from(body.file)
        close(self.profiles, call.feed)  # first, so that a crash cannot leave the feed open
        return self._write(call.feed, encode_users(parsed), len(parsed))

    @wire.local("/feeds/{feed}/users")
    def clear_users(self, call: Call) -> dict[str, Any]:
        """Remove all users."""
        return self._write(call.feed, "", 0)

    def _change(self, feed: str, change: Callable[[Profile], Profile]) -> dict[str, Any]:
        """Apply *change* to the profile; apply it again after a change by another process."""

        def attempt() -> dict[str, Any] | None:
            wanted = validate(change(self.profiles.profile(feed)))
            return settings_json(feed, wanted) if self.profiles.save(feed, wanted) else None

        return until_saved(attempt, "the settings of the feed")

    def _write(self, feed: str, text: str, count: int) -> dict[str, Any]:
        def attempt() -> dict[str, Any] | None:
            document = replace(self.documents.operator_document(feed, USERS), text=text)
            is_saved = self.documents.write(feed, USERS, document)
            return {"feed": public_name(feed), "users": count} if is_saved else None

        return until_saved(attempt, "the users")
