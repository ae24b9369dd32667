"""Where the events of a running pipeline go."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

ANSWER_S = 5.0  # an emitter that is away for longer must not hold the pipeline up
_TAKEN = (200, 201)

_log = logging.getLogger("tidings.flow")


@contextmanager
def emitter(*, as_json: bool, url: str | None) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Prints events as lines of JSON, posts them to *url*, both, or only logs them."""
    if url is None:
        yield _printed if as_json else _logged
        return
    import httpx

    with httpx.Client(timeout=ANSWER_S) as client:

        def tell(event: dict[str, Any]) -> None:
            (_printed if as_json else _logged)(event)
            try:
                answer = client.post(str(url), json=event)
            except httpx.HTTPError as error:
                _log.warning("an event was not taken: %s", error)
                return
            if answer.status_code not in _TAKEN:
                _log.warning("an event was answered with %d", answer.status_code)

        yield tell


def _printed(event: dict[str, Any]) -> None:
    click.echo(json.dumps(event, separators=(",", ":")))


def _logged(event: dict[str, Any]) -> None:
    level = logging.ERROR if event["kind"] == "error" else logging.INFO
    _log.log(level, "%s", json.dumps(event, separators=(",", ":")))
