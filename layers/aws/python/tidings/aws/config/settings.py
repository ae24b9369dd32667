"""
What the functions are told by their environment, which is read here alone: once, into a frozen
value.

`SETTINGS` is the table; infra sets the variables from it, docs/operations/OPERATIONS.md prints it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidings.web import settings as shared
from tidings.web.settings import NO_ORIGINS as NO_ORIGINS
from tidings.web.settings import MissingSetting as MissingSetting
from tidings.web.settings import Setting, Shared
from tidings.web.settings import WrongSetting as WrongSetting
from tidings.web.settings import origins as origins

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidings.aws.config.coordinator import CoordinatorUrl

SETTINGS = (
    Setting("TIDINGS_STAGE", None, "name of the stage: dev, staging, prod or local"),
    Setting("TIDINGS_LOG_TABLE", None, "table of the log's pages"),
    Setting("TIDINGS_STATE_TABLE", None, "table of the latest operation of each object"),
    Setting("TIDINGS_CONTROL_TABLE", None, "table of counters, floors, followers and claims"),
    Setting("TIDINGS_CONNECTIONS_TABLE", None, "table of WebSocket connections"),
    Setting("TIDINGS_OUTBOX_TABLE", "", "table where owners of other tables leave operations"),
    Setting("TIDINGS_FUNCTION_PREFIX", None, "what precedes a function's name when it is woken"),
    Setting("TIDINGS_SOCKETS_URL", "", "https endpoint to post to WebSocket connections"),
    *shared.SHARED,
    Setting("TIDINGS_FOLLOWER", "", "which follower a function runs: state, push or archive"),
    Setting("TIDINGS_ARCHIVE", "", "the archive: s3://BUCKET/PREFIX or file:///FOLDER"),
    Setting("TIDINGS_CAPTURE", "", "what a capture function makes of the writes in its table"),
    Setting("TIDINGS_COORDINATOR", "", "where leaders are elected: dynamodb://TABLE?region=REGION"),
)


@dataclass(frozen=True, slots=True)
class Settings(Shared):
    """What `SETTINGS` says."""

    stage: str
    log_table: str
    state_table: str
    control_table: str
    connections_table: str
    outbox_table: str
    function_prefix: str
    sockets_url: str
    follower: str
    archive: str
    capture: str
    coordinator: CoordinatorUrl | None


# Fields of `Settings` that are the text of the variable of their name.
_AS_THEY_ARE = (
    *("stage", "log_table", "state_table", "control_table", "connections_table", "outbox_table"),
    *("function_prefix", "sockets_url", "follower", "capture"),
)


def from_environment() -> Settings:
    return parse(os.environ)


def parse(environment: Mapping[str, str]) -> Settings:
    """
    Raises:
        MissingSetting: a variable without a default is absent or empty.
        WrongSetting: a value breaks its rule.
    """
    values = shared.values_of(environment, SETTINGS)
    coordinator = _coordinator(values)
    of_every_host = shared.parse(values, coordinated=coordinator is not None)
    as_they_are: dict[str, Any] = {name: values[f"TIDINGS_{name.upper()}"] for name in _AS_THEY_ARE}
    return Settings(
        **{name: getattr(of_every_host, name) for name in Shared.__slots__},
        **as_they_are,
        archive=_archive(values),
        coordinator=coordinator,
    )


def _archive(values: Mapping[str, str]) -> str:
    text = values["TIDINGS_ARCHIVE"]
    if text:
        from tidings.web import archive_url

        try:
            archive_url.parse(text)
        except archive_url.WrongArchive:
            raise WrongSetting("TIDINGS_ARCHIVE", text, archive_url.RULE) from None
    return text


def _coordinator(values: Mapping[str, str]) -> CoordinatorUrl | None:
    """Most deployments have none: then nothing is loaded to read it."""
    text = values["TIDINGS_COORDINATOR"]
    if not text:
        return None
    from tidings.aws.config import coordinator

    try:
        return coordinator.parse(text)
    except coordinator.WrongCoordinator as error:
        raise WrongSetting("TIDINGS_COORDINATOR", text, str(error)) from None
