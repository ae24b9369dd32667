"""What lies around a handler: events as AWS sends them, and what the handler did to AWS."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote

import pytest
from tidings.aws.runtime import clients
from tidings.aws.wiring import (
    adapters,
    archive,
    auth,
    catchup,
    chained,
    changeagent,
    consumers,
    core,
    corrections,
    ingest,
    replication,
    triton,
)

from tests.contract.answering import Answer, Answering

EVENTS = Path(__file__).parents[1] / "events"
CONNECTION = "UYx6Rf3wjoECJ5w="  # the one of the events
_INVOKED = re.compile(r"/2015-03-31/functions/(?P<name>[^/]+)/invocations")
_POSTED = re.compile(r"/@connections/(?P<id>.+)")


def event(name: str, **changes: Any) -> dict[str, Any]:
    """The event in *name*.json with other top-level fields."""
    found: dict[str, Any] = json.loads((EVENTS / f"{name}.json").read_text())
    return {**found, **changes}


def message(body: object) -> dict[str, Any]:
    """A WebSocket client says *body*."""
    return event("socket_message", body=body if isinstance(body, str) else json.dumps(body))


def forget(*modules: ModuleType) -> None:
    """Let what each module has cached be built anew, from the environment as it is now."""
    for module in modules:
        for part in vars(module).values():
            clear = getattr(part, "cache_clear", None)
            if clear is not None:
                clear()


def start_anew() -> None:
    """The next handler finds a process in which nothing was built yet."""
    forget(
        auth,
        core,
        adapters,
        auth,
        catchup,
        chained,
        ingest,
        archive,
        triton,
        changeagent,
        consumers,
        replication,
        corrections,
        clients,
    )


def archive_on_s3(monkeypatch: pytest.MonkeyPatch, url: str = "s3://kept/dev") -> None:
    """From now on there is an archive at *url*, in a bucket of moto's."""
    region: Any = {"LocationConstraint": clients.objects().meta.region_name}
    clients.objects().create_bucket(Bucket="kept", CreateBucketConfiguration=region)
    monkeypatch.setenv("TIDINGS_ARCHIVE", url)
    start_anew()


@dataclass(frozen=True)
class Cloud:
    """DynamoDB is moto's; Lambda and `@connections` are *around*, which writes everything down."""

    around: Answering

    @property
    def invoked(self) -> list[tuple[str, Any]]:
        """Functions woken, with their payloads."""
        return [
            (found["name"], asked.json)
            for asked in self.around.asked
            if (found := _INVOKED.fullmatch(asked.path))
        ]

    @property
    def posted(self) -> list[tuple[str, Any]]:
        """Messages sent to connections."""
        return [
            (unquote(found["id"]), asked.json)
            for asked in self.around.asked
            if asked.method == "POST" and (found := _POSTED.fullmatch(asked.path))
        ]

    @property
    def closed(self) -> list[str]:
        return [
            unquote(found["id"])
            for asked in self.around.asked
            if asked.method == "DELETE" and (found := _POSTED.fullmatch(asked.path))
        ]

    def answers(self, status: int, error: str = "") -> None:
        """From now on Lambda and `@connections` answer with this."""
        self.around.script[:] = [Answer(status, error=error)]
