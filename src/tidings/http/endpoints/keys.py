"""The routes of keys: list all keys, and revoke one (PROTOCOL 17.11)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidings.core import limits
from tidings.core.model.feeds import check_known
from tidings.core.model.timestamps import from_ms
from tidings.http.answers import json_answer
from tidings.http.routes import NEEDS

if TYPE_CHECKING:
    from tidings.core.auth.guard import Guard
    from tidings.core.auth.keys import Key, KeyIssuer
    from tidings.http.request import Answer, Request


@dataclass(frozen=True, slots=True)
class KeyRouter:
    """
    The endpoint of the routes of keys. It creates none, or an admin key could admit any caller.
    """

    issuer: KeyIssuer
    guard: Guard
    feeds: frozenset[str]

    def __call__(self, request: Request) -> Answer:
        """
        Return the response to *request*.

        Raises:
            TidingsError: see `answers.refusal`.
        """
        feed, now_ms = check_known(request.feed, self.feeds), self.issuer.clock()
        NEEDS[request.route].admit(self.guard, feed, request.credential)
        if request.method == "POST":
            revoked = self.issuer.revoke(feed, request.parameters["id"])
            return json_answer(200, key_document(feed, revoked, now_ms))
        keys = self.issuer.keys.keys(feed)
        return json_answer(200, {"keys": [key_document(feed, key, now_ms) for key in keys]})


def key_document(feed: str, key: Key, now_ms: int) -> dict[str, Any]:
    """Return everything about *key* except data that would help to guess it."""
    return {
        "feed": feed,
        "id": key.id,
        "state": key_state(key, now_ms),
        "roles": sorted(role.value for role in key.roles),
        "types": _sorted(key.bound.types),
        "parents": _sorted(key.bound.parents),
        "expires_at": from_ms(key.expires_ms) if key.expires_ms else None,
        "rate": key.rate or None,
        "streams": key.streams or limits.KEY_STREAMS,
        "label": key.label,
        "made_at": from_ms(key.made_ms),
        "made_by": key.made_by,
        "revoked_at": from_ms(key.revoked_ms) if key.revoked_ms else None,
        "successor": key.successor or None,
    }


def key_state(key: Key, now_ms: int) -> str:
    if key.revoked_ms:
        return "revoked"
    return "expired" if 0 < key.expires_ms <= now_ms else "holds"


def _sorted(values: frozenset[str] | None) -> list[str] | None:
    return None if values is None else sorted(values)
