"""The environment of a handler: events as AWS sends them, and the handler's calls of AWS."""

from __future__ import annotations

import base64
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote

import pytest

from tests.contract.answering import Answer, Answering, ReceivedRequest
from tests.contract.faults import Faults
from tidings.aws import clients, telemetry
from tidings.aws import stage as stage_module
from tidings.aws.dynamodb.records import DynamoDBRecords
from tidings.core.auth.guard import Role
from tidings.core.auth.keys import ID_LENGTH, Key, KeyStore, PresentedKey, digest_of

EVENTS = Path(__file__).parents[1] / "events"
CONNECTION = "UYx6Rf3wjoECJ5w="  # the one of the events
_INVOKED = re.compile(r"/2015-03-31/functions/([^/]+)/invocations\?Qualifier=live")
_POSTED = re.compile(r"/@connections/(.+)")


def event(name: str, *, more: Mapping[str, str] | None = None, **changes: Any) -> dict[str, Any]:
    """Return the event in *name*.json with other top-level fields, and *more* headers."""
    made: dict[str, Any] = {**json.loads((EVENTS / f"{name}.json").read_text()), **changes}
    return made if more is None else {**made, "headers": {**made.get("headers", {}), **more}}


def basic(password: str, user: str = "") -> dict[str, str]:
    """Return the headers of a client that sends *password*."""
    pair = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"authorization": f"Basic {pair}"}


def answered(
    handle: Callable[[dict[str, Any], Any], dict[str, Any]],
    route: str,
    body: object = None,
    *,
    query: Mapping[str, str] | None = None,
    password: str = "",
    **parameters: str,
) -> tuple[int, dict[str, Any]]:
    """Status and body of the answer to *body* as JSON, by *ann*."""
    answer = handle(
        event(
            "http_get_status",
            routeKey=route,
            headers=basic(password, "ann"),
            body="" if body is None else json.dumps(body),
            pathParameters={"feed": "main", **parameters},
            queryStringParameters=query or {},
        ),
        None,
    )
    return answer["statusCode"], json.loads(answer["body"])


def message(body: object) -> dict[str, Any]:
    """Return the event of a WebSocket client's message *body*."""
    return event("socket_message", body=body if isinstance(body, str) else json.dumps(body))


def forget(*modules: ModuleType) -> None:
    """Drop the caches of each module, so that they are built from the environment as it is now."""
    for module in modules:
        for part in vars(module).values():
            clear = getattr(part, "cache_clear", None)
            if clear is not None:
                clear()


def restart() -> None:
    """Drop the process, so that the next handler starts with nothing built."""
    stage_module.forget()


def log_here() -> None:
    """Python keeps handlers for the process, with the output of the test that wrote first."""
    telemetry.logger.cache_clear()
    for handler in telemetry.logger().handlers:
        assert isinstance(handler, logging.StreamHandler)
        handler.stream = sys.stdout  # the one before is closed: `setStream` would flush it


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Return the lines that functions have written since the last call."""
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def become(follower: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `follow` be the function of *follower* from now on."""
    monkeypatch.setenv("TIDINGS_FOLLOWER", follower)
    restart()


def without_dynamodb(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop DynamoDB from answering from now on."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:1")
    restart()


def give_key(*roles: Role, **fields: Any) -> str:
    """Return the credential of a new key of the feed main."""
    given = PresentedKey("0" * ID_LENGTH, "A" * 32)
    key = Key(given.id, digest_of(given.secret), frozenset(roles), **fields)
    assert KeyStore(DynamoDBRecords(clients.dynamodb(), "control")).save("main", key)
    return given.encode()


def archive_on_s3(monkeypatch: pytest.MonkeyPatch, url: str = "s3://kept/dev") -> None:
    """Set the archive to *url*, in a bucket of moto's."""
    region: Any = {"LocationConstraint": clients.objects().meta.region_name}
    clients.objects().create_bucket(Bucket="kept", CreateBucketConfiguration=region)
    monkeypatch.setenv("TIDINGS_ARCHIVE", url)
    restart()


@dataclass(frozen=True)
class Cloud:
    """DynamoDB is moto's, and *faults* may answer in its place; Lambda and `@connections` are
    *around*, which writes everything down."""

    around: Answering
    faults: Faults

    @property
    def invoked(self) -> list[tuple[str, Any]]:
        """Functions woken, with their payloads."""
        return [(name, asked.json) for name, asked in self._matching(_INVOKED)]

    @property
    def posted(self) -> list[tuple[str, Any]]:
        """Messages sent to connections."""
        return [(id, asked.json) for id, asked in self._matching(_POSTED, "POST")]

    @property
    def closed(self) -> list[str]:
        return [id for id, _ in self._matching(_POSTED, "DELETE")]

    def _matching(
        self, path: re.Pattern[str], *methods: str
    ) -> Iterator[tuple[str, ReceivedRequest]]:
        """Requests with what *path* names in theirs."""
        for asked in self.around.asked:
            match = path.fullmatch(asked.path)
            if match and (not methods or asked.method in methods):
                yield unquote(match[1]), asked

    def answers(self, status: int, error: str = "") -> None:
        """Let Lambda and `@connections` answer with this from now on."""
        self.around.script[:] = [Answer(status, error=error)]
