"""
Apply one part of a plan: `{"feed", "through", "bucket", "key", "behind"}`.

The answer reports the operations that were appended. If it is not `complete`, call the function
again with the same event and the answer's `behind`. `through` is taken from the plan's summary;
`behind` is initially 0 or absent.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tidings.aws import clients, s3
from tidings.aws.stage import stage
from tidings.aws.telemetry import edge


@edge
def handle(event: dict[str, Any], context: object) -> dict[str, Any]:
    part = s3.plan_lines(clients.objects(), event["bucket"], event["key"])
    behind = event.get("behind", 0)
    return asdict(stage().corrector.apply(event["feed"], event["through"], part, behind))
