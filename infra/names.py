"""Names that the templates and the programs around them share."""

from __future__ import annotations

from infra.settings import Stage

SOCKET_STAGE = "live"  # of the WebSocket API
STREAM_HANDLER = "run.sh"  # the web adapter runs the handler as a program


def prefix(stage: Stage) -> str:
    """What precedes the name of each function of *stage*."""
    return f"tidings-{stage.name}-"


def title(name: str) -> str:
    """`follow-push` as CloudFormation likes it: `FollowPush`."""
    return "".join(part.title() for part in name.split("-"))
