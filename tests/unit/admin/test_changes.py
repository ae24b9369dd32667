"""Changes of a profile: which passwords hold afterwards, and what is shown."""

from __future__ import annotations

import json
from dataclasses import fields

from tidings.admin import changes
from tidings.admin.feed_command import set_
from tidings.core.auth.guard import Role
from tidings.core.auth.passwords import hashed
from tidings.core.settings.profiles import Profile
from tidings.server.feed_options import FeedOptions

FIRST, SECOND, THIRD = (
    hashed(f"password {number}", salt=b"s" * 16, now_ms=number * 1000) for number in (1, 2, 3)
)
# What no owner sets with an option: hashes, what ended, what a restore lost, what guards updates.
APART = {"read_passwords", "ingest_passwords", "ended", "lost", "version", "closed"}
WHILE_IT_RUNS = {"push_lanes"}  # a server has one whatever is set, a twin is told when it is there


def test_every_setting_can_be_set_and_is_shown() -> None:
    """Of a stage, of a host when it starts, and to a program."""
    settings = {each.name.removesuffix("_s") for each in fields(Profile)} - APART

    assert settings <= {each.name for each in set_.params}
    assert settings - WHILE_IT_RUNS <= {each.name for each in fields(FeedOptions)}
    assert settings <= {*changes.as_json("main", Profile())}


def test_a_new_password_replaces_the_old_one() -> None:
    """Of its role alone."""
    profile = Profile(read_passwords=(FIRST,), ingest_passwords=(FIRST,))
    changed = changes.with_password(profile, Role.READ, SECOND, keep_old=False)
    assert (changed.read_passwords, changed.ingest_passwords) == ((SECOND,), (FIRST,))
    changed = changes.with_password(profile, Role.INGEST, SECOND, keep_old=False)
    assert (changed.read_passwords, changed.ingest_passwords) == ((FIRST,), (SECOND,))


def test_the_old_one_may_be_kept_and_no_older_one() -> None:
    """Two hold at a time, the newest first."""
    profile = Profile(read_passwords=(SECOND, FIRST))
    changed = changes.with_password(profile, Role.READ, THIRD, keep_old=True)
    assert changed.read_passwords == (THIRD, SECOND)


def test_at_the_end_of_a_rotation_the_newest_is_left() -> None:
    """Where there is one."""
    assert changes.without_old(Profile(read_passwords=(SECOND, FIRST)), Role.READ) == Profile(
        read_passwords=(SECOND,)
    )
    assert changes.without_old(Profile(), Role.READ) == Profile()


def test_no_hash_is_shown() -> None:
    """To a person or a program; only how many there are and since when."""
    profile = Profile("http://api/{{id}}", "oplog", True, (SECOND, FIRST), (), 7)
    lines = "\n".join(changes.as_lines("main", profile))
    data = changes.as_json("main", profile)

    assert "1 of 2, set at 1970-01-01T00:00:02Z" in lines
    assert "ingest password  none: closed" in lines
    assert data["read_passwords"] == [
        {"set_at": "1970-01-01T00:00:02Z"},
        {"set_at": "1970-01-01T00:00:01Z"},
    ]
    assert "scrypt" not in lines + json.dumps(data)
