"""The target of the suite, and the rules that it leaves out."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase

# The resources of the listeners' cases: a target must declare them.
RESOURCES = ("vm:nic,alias=/vms", "own:a,b")
NO_REASON = "left out by --skip-rules"


@dataclass(frozen=True, slots=True)
class Target:
    """
    A running feed. *alone*: no other producer uses it, so any event at all is a finding.

    *skips* maps patterns of rule numbers to reasons.
    """

    base_url: str
    ws_url: str
    stream_url: str
    feed: str
    alone: bool
    skips: dict[str, str] = field(default_factory=dict)

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
