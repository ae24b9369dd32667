"""Check with a few client requests the minimum that must work on any deployed stage.

    python -m infra.smoke --stage staging      with a key in TIDINGS_PASSWORD

Run this program in a delivery pipeline, and before the conformance suite, which tests the rest.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from uuid import uuid4

import boto3
import click
import httpx
from websockets.sync.client import connect

from tidings.aws.config import stages

WAIT_S = 90  # longest wait for an answer; an emulator starts a process for a function's first call


class SmokeFailed(Exception):
    """An answer differs from PROTOCOL.md."""


def run(base_url: str, stream_url: str, sockets_url: str, secret: str = "") -> Iterator[str]:
    """Yield one line for each successful check.

    *secret* is a key or a password for reading and posting; "" if the stage is open.

    Raises:
        SmokeFailed: a check failed; the later checks were not done.
    """
    socket_subject, stream_subject = (f"smoke-{uuid4().hex}" for _ in range(2))
    with connect(sockets_url, open_timeout=WAIT_S) as socket:
        shown = {"password": secret} if secret else {}
        socket.send(json.dumps({"action": "subscribe", **shown}))
        reply = json.loads(socket.recv(WAIT_S))
        _check(reply.get("reply") == "subscribed", f"subscribe was answered with {reply}")
        event_id = _post(base_url, socket_subject, secret)
        yield f"POST answered with the id {event_id}"
        ids = _ids_in(socket.recv(WAIT_S))
        _check(event_id in ids, f"the WebSocket sent {ids}, not {event_id}")
        yield "WebSocket sent the operation"
    later = _post(base_url, stream_subject, secret)
    received = _next_id(stream_url, event_id, secret)
    _check(received == later, f"SSE after {event_id} did not start with {later}")
    yield "SSE, resumed after the first operation, began with the second"


def _post(base_url: str, subject: str, secret: str) -> str:
    answer = httpx.post(
        f"{base_url}/ops",
        json={"event": "insert", "type": "smoke", "id": subject},
        headers={"Prefer": "return=representation"},
        auth=_auth(secret),
        timeout=WAIT_S,
    )
    _check(answer.status_code == httpx.codes.OK, f"POST: {answer.status_code} {answer.text}")
    return str(answer.json()["ids"][0])


def _ids_in(message: str | bytes) -> list[str]:
    return [event["id"] for event in json.loads(message).get("events", [])]


def _next_id(stream_url: str, after: str, secret: str) -> str | None:
    headers = {"Accept": "text/event-stream", "Last-Event-ID": after}
    url, auth = f"{stream_url.rstrip('/')}/ops", _auth(secret)
    with httpx.stream("GET", url, headers=headers, auth=auth, timeout=WAIT_S) as answer:
        for line in answer.iter_lines():
            if line.startswith("id: "):
                return line.removeprefix("id: ")
    return None


def _auth(secret: str) -> tuple[str, str] | None:
    return ("", secret) if secret else None


def _check(holds: bool, problem: str) -> None:
    if not holds:
        raise SmokeFailed(problem)


@click.command()
@click.option("--stage", required=True, metavar="NAME", help="The stage: dev, staging, prod.")
def main(stage: str) -> None:
    """Post to the stage NAME, and receive the events over WebSocket and SSE.

    TIDINGS_PASSWORD is a key with the roles read and ingest. The exit code is 1 if an answer
    differs from PROTOCOL.md.

    \b
    Example:
      export TIDINGS_PASSWORD=$(tidings keys create --stage staging --role read --role ingest \\
        --expires 1h)
      python -m infra.smoke --stage staging
    """
    try:
        found = stages.addresses(stage, boto3.client("cloudformation"))
        for line in run(*found, os.environ.get("TIDINGS_PASSWORD", "")):
            click.echo(line)
    except (SmokeFailed, stages.NoStage) as failed:
        raise click.ClickException(str(failed)) from None


if __name__ == "__main__":
    main()
