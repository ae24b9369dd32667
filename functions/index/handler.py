"""The schedule's run of the index: which tags are on which pages."""

from __future__ import annotations

from typing import Any

from tidings.aws import app, changes_app
from tidings.aws.telemetry import edge


@edge
def handle(event: dict[str, Any], context: object) -> None:
    for feed in sorted(app.settings().feeds):
        changes_app.indexer().run(feed)
