"""An EventBridge bus for the events of running pipelines."""

from __future__ import annotations

import json
import logging
from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import Session

SOURCE = "tidings.pipeline"
_PATIENCE = Config(connect_timeout=5, read_timeout=5, retries={"total_max_attempts": 2})

_log = logging.getLogger("tidings.pipelines")


class EventBus:
    """
    The bus *name*; the kind of an event is its detail type.

    A failed put is only logged: a pipeline does not wait for its observers.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._client: Any = Session().create_client("events", config=_PATIENCE)

    def tell(self, event: dict[str, Any]) -> None:
        entry = {
            "Source": SOURCE,
            "DetailType": event["kind"],
            "Detail": json.dumps(event, separators=(",", ":")),
            "EventBusName": self._name,
        }
        try:
            answer = self._client.put_events(Entries=[entry])
        except (BotoCoreError, ClientError) as error:
            _log.warning("an event was not taken: %s", error)
            return
        if answer["FailedEntryCount"]:
            _log.warning("an event was not taken: %s", answer["Entries"][0].get("ErrorMessage"))
