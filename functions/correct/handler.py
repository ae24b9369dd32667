"""Apply one part of a plan. The event is `{"feed", "through", "bucket", "key", "behind"}`.

The part is the object `key` in `bucket`. `through` is copied from the plan's summary. `behind` is
the number of lines of the part that earlier calls have handled; the first call omits it.

The answer counts the operations that were appended. If its `complete` is false, call the function
again with the same event and the answer's `behind`.
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
    handled = event.get("behind", 0)
    return asdict(stage().corrector.apply(event["feed"], event["through"], part, handled))
