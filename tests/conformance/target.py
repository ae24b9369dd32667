"""The target of the suite, and the rules that it leaves out."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Self

import httpx

from tests.conformance.listeners import TRUSTED

# The settings of the feeds that the suite creates: the listeners' cases need the resources.
SETTINGS: dict[str, Any] = {
    "leave": True,
    "resources": [
        {"resource": "vm", "subResources": ["nic", "alias"], "bootstrapRoute": "/vms"},
        {"resource": "own", "subResources": ["a", "b"]},
    ],
    "max_age": 28_800,
}
NO_REASON = "left out by --skip-rules"


@dataclass(frozen=True, slots=True)
class Target:
    """A running host and a feed. *alone*: no other producer uses the feed, so any event at all is a
    finding.

    Without a *feed*, the suite creates one for each section, with *settings*, and deletes it at the
    end. *skips* maps patterns of rule numbers to reasons.
    """

    base_url: str
    ws_url: str
    stream_url: str
    feed: str
    alone: bool
    skips: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=lambda: {**SETTINGS})
    _created: dict[str, str] = field(default_factory=dict)

    def in_section(self, section: str) -> Self:
        """Return the target with the feed for the cases of *section*, which is created first."""
        if self.feed:
            return self
        if section not in self._created:
            name = f"conformance-{section}-{secrets.token_hex(4)}"
            url = f"{self.base_url}/feeds/{name}"
            httpx.put(url, json=self.settings, verify=TRUSTED).raise_for_status()
            self._created[section] = name
        return replace(self, feed=self._created[section])

    def delete_feeds(self) -> None:
        """Delete the feeds that this object created."""
        for name in self._created.values():
            query = {"confirm": name, "force": "true"}
            url = f"{self.base_url}/feeds/{name}"
            httpx.delete(url, params=query, verify=TRUSTED).raise_for_status()

    @property
    def ops_path(self) -> str:
        return f"/feeds/{self.feed}/ops"

    @property
    def transports(self) -> list[str]:
        """Return the transports that are not left out as a whole."""
        entrances = {"sse": "7.1", "ws": "8.1"}
        return [name for name, rule in entrances.items() if self.skip_reason(rule) is None]

    def skip_reason(self, rule: str) -> str | None:
        for pattern, reason in self.skips.items():
            if fnmatchcase(rule, pattern):
                return reason
        return None


def socket_url(base_url: str) -> str:
    """Return the address of a twin's WebSocket."""
    return base_url.replace("http", "ws", 1).rstrip("/") + "/ws"


def parse_skips(text: str) -> dict[str, str]:
    """Parse `7.*=no streaming,8.6` to patterns and reasons."""
    skips = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        pattern, _, reason = part.partition("=")
        skips[pattern.strip()] = reason.strip() or NO_REASON
    return skips
