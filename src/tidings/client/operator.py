"""Requests of operators about one feed: its keys and the attempts of its webhooks."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from tidings.client.feed_api import Answer, FeedApi


class Operator(FeedApi):
    """An operator's requests about a feed. Close the object, or use `with`. Threads may share it.

    Each method raises AccessDenied or Refused if the server gave a final answer, and Lost if no
    answer arrived.
    """

    def list_keys(self, *, host: bool = False) -> list[Answer]:
        """Return the keys of the feed, or with *host* those of the host, without their secrets."""
        return list(self.ask("GET", "keys", query=_scope(host=host))["keys"])

    def create_key(
        self,
        roles: Sequence[str],
        *,
        types: Sequence[str] = (),
        parents: Sequence[str] = (),
        expires: str = "",
        rate: int = 0,
        streams: int = 0,
        label: str = "",
        feeds: Sequence[str] = (),
        host: bool = False,
    ) -> Answer:
        """Create a key with *roles*, and return its description and, in `key`, the key itself.

        The key has at most the rights of the password of this object. *expires* is a lifetime such
        as `24h`. With *host*, the key is one of the host, for the feeds with the prefixes *feeds*.
        After `Lost`, the key may exist: find it with `list_keys`, revoke it, and create another.
        """
        given = {
            "roles": [*roles],
            "types": [*types],
            "parents": [*parents],
            "expires": expires,
            "rate": rate,
            "streams": streams,
            "label": label,
            "feeds": [*feeds],
        }
        body = {name: value for name, value in given.items() if value}
        return self.ask("POST", "keys", body=body, query=_scope(host=host))

    def revoke_key(self, key_id: str, *, host: bool = False) -> Answer:
        """Revoke the key with the id *key_id*, and return its description."""
        path = f"keys/{quote(key_id, safe='')}/revoke"
        return self.ask("POST", path, query=_scope(host=host))

    def attempts(self, hook: str) -> Answer:
        """Return the last attempts of the webhook *hook*, the latest first, in `attempts`.

        The server has those since the time in `since` (PROTOCOL 19.8).
        """
        return self.ask("GET", f"hooks/{quote(hook, safe='')}/attempts")

    def history(self) -> Answer:
        """Return the samples of the last hour in `samples`, the oldest first (PROTOCOL 9.10)."""
        return self.ask("GET", "history")

    def clients(self) -> Answer:
        """Return the connected clients in `clients`, and their number in `total` (9.11)."""
        return self.ask("GET", "clients")


def _scope(*, host: bool) -> dict[str, str]:
    return {"host": "true"} if host else {}
