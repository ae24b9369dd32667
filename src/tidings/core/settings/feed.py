"""
What the owner of a feed has set: links, compatibility, passwords. Changes count within seconds.

Deployment says what exists (`tidings.aws.config.settings`); a profile says how a feed behaves, and
its owner changes it while everything runs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.errors import InvalidSetting
from tidings.core.settings.resources import Resource, check_all
from tidings.core.settings.revocations import may_be_forgotten

if TYPE_CHECKING:
    from tidings.core.settings.lost_pages import Lost
    from tidings.core.settings.revocations import Admission, Ended, Endings

OPLOG = "oplog"
COMPATS = ("", OPLOG)
_PLACEHOLDER = re.compile(r"\{\{(.*?)\}\}")
_PLACEHOLDERS = {"type", "id"}


@dataclass(frozen=True, slots=True)
class Profile:
    """
    *object_url* is the template of `ref`, empty for none. *compat* `oplog` answers as oplog
    did. *leave* keeps what consumers with `leave=true` need. *resources* are those that listeners
    may register for, and *max_age_s* is how long the log keeps their items; 0: as long as any.
    *push_lanes* is over how many followers a stage spreads the WebSockets; a server has one anyway.

    The passwords are hashes of `auth.passwords`, newest first, at most `limits.PASSWORDS_MAX` a
    role so that clients can move from one to the next. *ended* are keys that ended lately, so that
    who is connected with one is let go. *lost* are the first and last pages that restores lost, see
    `settings.lost_pages`. *closed* is set before the first key or user of the feed is stored and
    stays set, also after the last one has ended. *version* guards every update.
    """

    object_url: str = ""
    compat: str = ""
    leave: bool = False
    read_passwords: tuple[str, ...] = field(default=(), repr=False)
    ingest_passwords: tuple[str, ...] = field(default=(), repr=False)
    version: int = 0
    resources: tuple[Resource, ...] = ()
    max_age_s: int = 0
    ended: tuple[Ended, ...] = ()
    lost: tuple[Lost, ...] = ()
    push_lanes: int = 1
    closed: bool = False

    @property
    def is_protected(self) -> bool:
        """Return True if the feed has a credential, so that no role of it may be open."""
        return self.closed or bool(self.read_passwords or self.ingest_passwords)


def check_object_url(template: str) -> str:
    """
    *template* if it can be one; empty for none.

    Raises:
        InvalidSetting: too long, not printable ASCII, of another scheme than HTTP's, or with a
            placeholder nobody fills.
    """
    if len(template) > limits.OBJECT_URL_CHARS_MAX:
        rule = f"holds at most {limits.OBJECT_URL_CHARS_MAX} characters, got {len(template)}"
        raise InvalidSetting(rule, field="object_url")
    if not re.fullmatch(r"[!-~]*", template):
        rule = "must be printable ASCII without blanks"
        raise InvalidSetting(rule, field="object_url", value=template)
    if template and not template.startswith(("http://", "https://", "/")):
        rule = "must begin with http://, https:// or /"  # readers make links of it
        raise InvalidSetting(rule, field="object_url", value=template)
    if not set(_PLACEHOLDER.findall(template)) <= _PLACEHOLDERS:
        rule = "may hold {{type}} and {{id}} and no other placeholder"
        raise InvalidSetting(rule, field="object_url", value=template)
    return template


def check_compat(name: str) -> str:
    """
    *name* if it is a manner we have; empty for our own.

    Raises:
        InvalidSetting: it is not.
    """
    if name not in COMPATS:
        raise InvalidSetting(f"must be empty or {OPLOG}", field="compat", value=name)
    return name


def check_push_lanes(lanes: int) -> int:
    """
    *lanes* if a feed can have so many.

    Raises:
        InvalidSetting: it cannot.
    """
    if not 1 <= lanes <= limits.PUSH_LANES_MAX:
        rule = f"must be from 1 to {limits.PUSH_LANES_MAX}"
        raise InvalidSetting(rule, field="push_lanes", value=lanes)
    return lanes


def checked(profile: Profile) -> Profile:
    """
    *profile* if it may be saved.

    Raises:
        InvalidSetting: a field breaks its rule.
    """
    check_object_url(profile.object_url)
    check_compat(profile.compat)
    check_all(profile.resources, profile.max_age_s)
    check_push_lanes(profile.push_lanes)
    for name in ("read_passwords", "ingest_passwords"):
        if len(getattr(profile, name)) > limits.PASSWORDS_MAX:
            rule = f"a feed has at most {limits.PASSWORDS_MAX} passwords of each role"
            raise InvalidSetting(rule, field=name)
    return profile


def saved(profile: Profile) -> Profile:
    """*profile* as it is stored: the next version."""
    return replace(profile, version=profile.version + 1)


def endings_of(profile: Profile) -> Endings:
    return {each.key: each.from_ms for each in profile.ended}


def is_let_go(profile: Profile, admission: Admission, since_ms: int, now_ms: int) -> bool:
    """Whether who was let in with *admission* at *since_ms* may be told no more."""
    endings = endings_of(profile)
    if admission.key and may_be_forgotten(endings, since_ms, now_ms):
        return True
    return admission.has_ended(endings, now_ms)
