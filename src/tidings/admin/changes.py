"""Pure functions that change a profile, and that show it without its secrets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tidings.core import limits
from tidings.core.auth.guard import PASSWORD_ROLES, Role, passwords_of
from tidings.core.auth.passwords import set_at_ms
from tidings.core.model.timestamps import from_ms
from tidings.core.settings.profiles import Profile

Change = Callable[[Profile], Profile]


CLOSED = "none: closed, unless the feed has no credential and its host is open"


def with_password(profile: Profile, role: Role, stored: str, *, keep_old: bool) -> Profile:
    """Set a new password. With *keep_old*, keep the newest of the old ones after it."""
    old = passwords_of(profile, role) if keep_old else ()
    return with_passwords(profile, role, (stored, *old)[: limits.PASSWORDS_MAX])


def with_passwords(profile: Profile, role: Role, stored: tuple[str, ...]) -> Profile:
    if role is Role.READ:
        return replace(profile, read_passwords=stored)
    return replace(profile, ingest_passwords=stored)


def without_old(profile: Profile, role: Role) -> Profile:
    """Keep only the newest password."""
    return with_passwords(profile, role, passwords_of(profile, role)[:1])


def as_json(feed: str, profile: Profile) -> dict[str, object]:
    """Return all settings as JSON, without the hashes."""
    return {
        "feed": feed,
        "object_url": profile.object_url,
        "compat": profile.compat,
        "leave": profile.leave,
        "resources": [resource.document() for resource in profile.resources],
        "max_age": profile.max_age_s,
        "push_lanes": profile.push_lanes,
        "closed": profile.closed,
        **{
            f"{role.value}_passwords": [
                {"set_at": from_ms(set_at_ms(stored))} for stored in passwords_of(profile, role)
            ]
            for role in PASSWORD_ROLES
        },
        "version": profile.version,
    }


def as_lines(feed: str, profile: Profile) -> list[str]:
    """Return the settings as lines of text."""
    rows = [
        ("feed", feed),
        ("object url", profile.object_url or "none"),
        ("compat", profile.compat or "none"),
        ("leave", "on" if profile.leave else "off"),
        *(
            ("resource", f"{each.name}: {', '.join(each.subs)} ({each.route})")
            for each in profile.resources
        ),
    ]
    if profile.max_age_s:
        rows.append(("max age", f"{profile.max_age_s} s"))
    if profile.push_lanes > 1:
        rows.append(("push lanes", str(profile.push_lanes)))
    if profile.closed:
        rows.append(("closed", "yes: it has or had keys or users"))
    for role in PASSWORD_ROLES:
        rows += [(f"{role.value} password", line) for line in _passwords(profile, role)]
    return [f"{name:<16} {value}" for name, value in rows]


def _passwords(profile: Profile, role: Role) -> list[str]:
    passwords = passwords_of(profile, role)
    return [
        f"{number} of {len(passwords)}, set at {from_ms(set_at_ms(stored))}"
        for number, stored in enumerate(passwords, 1)
    ] or [CLOSED]
