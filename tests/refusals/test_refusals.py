"""The answers to wrong requests: status, code, field, value and rule, as they were recorded.

`RECORD=1 .venv/bin/pytest tests/refusals` records them again; read the difference before you
commit it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.refusals.wrong_requests import CONSUMER, HOOK, SECRET, Document, Request
from tidings.server.running import Server

FOLDER = Path(__file__).parent / "recorded"
PATIENCE_S = 60.0
_RUN = re.compile(r"(.)\1{29,}")  # of one character; it is stored as «x*300»
_STORED_RUN = re.compile(r"«(.)\*(\d+)»")
_VARYING = re.compile(r"127\.0\.0\.1:\d+|[0-9]+ ms more|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z")


def feed_of(operation: str) -> str:
    """Return the name of the feed that only this operation uses."""
    return re.sub(r"[A-Z]", lambda found: f"-{found[0].lower()}", operation)


def shortened(text: str) -> str:
    return _RUN.sub(lambda found: f"«{found[1]}*{len(found[0])}»", text)


def written_out(text: str) -> str:
    return _STORED_RUN.sub(lambda found: found[1] * int(found[2]), text)


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with Server() as server, httpx.Client(base_url=server.url, timeout=PATIENCE_S) as made:
        yield made


def fill(client: httpx.Client, feed: str) -> None:
    """Create *feed* with an object, a consumer and a webhook, unless it has them."""
    at, operation = f"feeds/{feed}", {"event": "insert", "type": "order", "id": "o-1", "data": 1}
    for path, method, body in (
        (at, "PUT", {}),
        (f"{at}/ops", "POST", [operation]),
        (f"{at}/consumers/{CONSUMER}", "PUT", {}),
        (f"{at}/hooks/{HOOK}", "PUT", {"url": "https://hooks.invalid/", "from": "oldest"}),
    ):
        client.request(method, path, json=body).raise_for_status()


def answer(client: httpx.Client, request: Request) -> list[Any]:
    """Return the status, and of a refusal code, field, value and rule, or else its text."""
    query = f"?{request.query}" if request.query else ""
    with client.stream(
        request.method, request.path + query, headers=request.headers, content=request.body
    ) as received:
        if received.status_code < 300:
            return [received.status_code]
        text = received.read().decode()
    assert SECRET not in text, request
    try:
        error = json.loads(text)["error"]
        told = [error[name] for name in ("code", "field", "value", "rule")]
    except (ValueError, TypeError, KeyError):
        told = [text[:300]]
    return [received.status_code, *(_VARYING.sub("…", shortened(each)) for each in told)]


@pytest.mark.skipif("RECORD" in os.environ, reason="the records are written again")
@pytest.mark.parametrize("operation", sorted(file.stem for file in FOLDER.glob("*.jsonl")))
def test_a_wrong_request_is_answered_as_recorded(operation: str, client: httpx.Client) -> None:
    fill(client, feed_of(operation))
    differ = []
    for line in (FOLDER / f"{operation}.jsonl").read_text().splitlines():
        record = json.loads(written_out(line))
        expected = [record.pop("status"), *record.pop("told", [])]
        told = answer(client, Request(**record))
        if told != [shortened(each) if isinstance(each, str) else each for each in expected]:
            differ.append((record["what"], expected, told))

    assert differ == []


@pytest.mark.skipif("RECORD" not in os.environ, reason="it writes the files")
def test_record(client: httpx.Client) -> None:
    FOLDER.mkdir(exist_ok=True)
    for file in FOLDER.glob("*.jsonl"):
        file.unlink()
    document = Document(client.get("openapi.json").json())
    for operation, method, path in document.operations():
        if operation.endswith(("Main", "Root")):
            continue  # another path of an operation that is recorded
        feed, lines = feed_of(operation), {}
        fill(client, feed)
        for request in document.wrong_requests(method, path, feed):
            status, *told = answer(client, request)
            if method == "DELETE" and status < 300:
                fill(client, feed)  # it was not wrong
                continue
            record = {name: value for name, value in asdict(request).items() if value is not None}
            sent = json.dumps(
                {name: value for name, value in record.items() if value not in ("", {})}
            )
            found = {**json.loads(sent), "status": status, **({"told": told} if told else {})}
            lines[sent] = shortened(json.dumps(found, ensure_ascii=False))
        (FOLDER / f"{operation}.jsonl").write_text("".join(f"{line}\n" for line in lines.values()))
