"""The log of a host on stderr: lines of text, or one JSON object per line.

A log call that passes a mapping as its only argument has fields: `log.warning("%(feed)s: ...",
{"feed": feed})`. The text has the same values as the JSON, and the mapping may have more.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import click

from tidings.server.output import unblock

TEXT, JSON = "text", "json"
VARIABLE = "TIDINGS_LOG_FORMAT"
_TEXT = "%(asctime)s %(levelname)s %(name)s %(message)s"
_PLAIN = (str, int, float, bool, type(None))

log_format_option: Callable[..., Any] = click.option(
    "--log-format",
    type=click.Choice((TEXT, JSON)),
    default=TEXT,
    show_default=True,
    envvar=VARIABLE,
    show_envvar=True,
    help="Write the log to stderr as text, or as one JSON object per line.",
)


class JsonFormatter(logging.Formatter):
    """A formatter that writes a record as one line of JSON, with the names of Powertools' logger.

    The keys are `level`, `location` (function and line), `message`, `timestamp` (RFC 3339, UTC),
    `service`, `logger`, and the fields of the call. An exception adds `exception_name` and
    `exception`, which is the traceback.
    """

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        """Return *record* as JSON without line breaks."""
        line: dict[str, object] = {}
        if isinstance(record.args, Mapping):
            line.update(record.args)
        at = datetime.fromtimestamp(record.created, UTC)
        line = {
            "level": record.levelname,
            "location": f"{record.funcName}:{record.lineno}",
            "message": record.getMessage(),
            "timestamp": at.isoformat(timespec="milliseconds"),
            "service": self._service,
            "logger": record.name,
            **{name: value for name, value in line.items() if name not in _OWN},
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["exception_name"] = record.exc_info[0].__name__
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps({name: _plain(value) for name, value in line.items()})


_OWN = frozenset({"level", "location", "message", "timestamp", "service", "logger"})


def _plain(value: object) -> object:
    return value if isinstance(value, _PLAIN) else str(value)


def configure(log_format: str, service: str, level: int = logging.WARNING) -> None:
    """Write the log of this process to stderr. *service* is the name of the command.

    From now on, neither stdout nor stderr blocks the process.
    """
    unblock("stdout", "stderr", waits=False)
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter(service) if log_format == JSON else logging.Formatter(_TEXT))
    logging.basicConfig(level=level, handlers=[handler])


def report_problem(log_format: str, command: str, problem: Exception | str) -> None:
    """Write why *command* ends to stderr, in the format of its log."""
    if log_format == JSON:
        logging.getLogger("tidings").error("%s", problem)
    else:
        click.echo(f"{command}: {problem}", err=True)
    sys.stderr.flush()
