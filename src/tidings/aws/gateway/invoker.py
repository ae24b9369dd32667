"""Wake functions through the Lambda API, asynchronously."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tidings.aws.config.aliases import LIVE
from tidings.aws.gateway import stream_triggers
from tidings.aws.runtime.aws_errors import translated
from tidings.core.errors import Unavailable
from tidings.core.followers.names import PUSH, lane_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mypy_boto3_lambda import LambdaClient

    from tidings.core.followers.leases import Observation


class LambdaWaker:
    """Implements `Waker`. *prefix* precedes the names of `deployment.FUNCTIONS`."""

    def __init__(self, client: LambdaClient, prefix: str) -> None:
        self._client, self._prefix = client, prefix

    def ring(self, feed: str, follower: str, observation: Observation | None = None) -> None:
        """Invoke the function of *follower*; all lanes of push are runs of one function."""
        lane = lane_of(follower)
        function = follower if lane is None else PUSH
        self._wake(f"follow-{function}", stream_triggers.payload(feed, observation, lane or 0))

    def replay(self, connection_id: str) -> None:
        self._wake("replay", {"replay": connection_id})

    def run(self, function: str, feed: str) -> None:
        """Run the function of that name for *feed* soon; may be lost, like any wake-up."""
        self._wake(function, stream_triggers.payload(feed))

    def _wake(self, function: str, payload: Mapping[str, Any]) -> None:
        try:
            with translated():
                self._client.invoke(
                    FunctionName=f"{self._prefix}{function}",
                    Qualifier=LIVE,
                    InvocationType="Event",
                    Payload=json.dumps(payload).encode(),
                )
        except Unavailable:
            return  # a wake-up may be lost: the sweep sends another within a minute
