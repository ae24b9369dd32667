"""Decide which callers may create, change, show and delete the feeds of a host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidings.core.model.feeds import HOST

if TYPE_CHECKING:
    from tidings.core.auth.guard import Allowed, Credential, Guard, Role
    from tidings.core.feeds.directory import Directory


def admit(
    guard: Guard, directory: Directory, name: str, role: Role, given: Credential | None
) -> Allowed:
    """Return the rights of *given* for a request at the host about the feed *name*.

    The caller needs *role* at the host. On an open host without a credential, the caller needs
    *role* on a feed that has credentials of its own, so that only its owner can delete it.

    Raises:
        InvalidFeed: the name is not valid.
        Rejected: *given* lacks the role; see `Guard.check_host`.
        Unavailable: a store does not answer.
    """
    record = directory.record(name)
    has_owner = record is not None and record.is_live and guard.is_protected(record.key)
    if record is not None and has_owner and guard.open and not guard.is_protected(HOST):
        return guard.check(record.key, role, given, unrestricted=True)
    return guard.check_host(role, given, name)
