"""Serve `GET /feeds/{feed}/access`, the rights of the caller's credential (PROTOCOL 10.10)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidings.http.answers import json_answer

if TYPE_CHECKING:
    from tidings.core.auth.guard import Guard
    from tidings.core.model.feeds import FeedNames
    from tidings.http.request import Answer, Request


@dataclass(frozen=True, slots=True)
class AccessReport:
    """The endpoint that returns the roles and the principal of the caller."""

    guard: Guard
    feeds: FeedNames

    def __call__(self, request: Request) -> Answer:
        rights = self.guard.rights(self.feeds.key(request.feed), request.credential)
        roles = [
            {"role": role.value, **dict.fromkeys(("types", "parents")), **allowed.bound.values()}
            for role, allowed in rights.items()
        ]
        principals = {allowed.principal for allowed in rights.values()} - {""}
        return json_answer(200, {"principal": min(principals, default=None), "roles": roles})
