"""Waking functions through the Lambda API, without waiting for what they do."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tidings.core.errors import Unavailable

from .weather import translated

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient


class LambdaBells:
    """Implements `Bells`. *prefix* precedes the names of `blueprint.FUNCTIONS`."""

    def __init__(self, client: LambdaClient, prefix: str) -> None:
        self._client, self._prefix = client, prefix

    def ring(self, feed: str, follower: str) -> None:
        self._wake(f"follow-{follower}", {"ring": feed})

    def replay(self, connection_id: str) -> None:
        self._wake("replay", {"replay": connection_id})

    def _wake(self, function: str, payload: dict[str, str]) -> None:
        try:
            with translated():
                self._client.invoke(
                    FunctionName=f"{self._prefix}{function}",
                    InvocationType="Event",
                    Payload=json.dumps(payload).encode(),
                )
        except Unavailable:
            return  # a bell may be lost: the sweep rings again within a minute
