"""The schedule's safety net: late followers, retention, connections left half way."""

from __future__ import annotations

from typing import Any

from tidings.aws import app
from tidings.aws.telemetry import edge


@edge
def handle(event: dict[str, Any], context: object) -> None:
    app.sweeper().run(app.settings().feeds)
