"""The options of `tidings serve`, and the settings of a server, from options and environment."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from tidings.http.settings import NO_ORIGINS, Shared, WrongSetting, setting
from tidings.server import feed_options
from tidings.server.feed_options import HostOptions
from tidings.server.processes import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_STREAM_SECONDS = "TIDINGS_STREAM_SECONDS"  # a setting of stages, and of earlier servers


@dataclass(frozen=True, slots=True)
class Options(HostOptions):
    """The options of `tidings serve`.

    *data* is the data folder. *settings* overrides the *environment*, which overrides the defaults
    of `Settings`. If *unix_socket* is given, the server listens there and not on host and port.
    *proxies* are the addresses and networks of the proxies with trusted `Forwarded` headers.
    """

    unix_socket: Path | None = None
    proxies: tuple[str, ...] = ()
    tls_cert: Path | None = None
    tls_key: Path | None = None
    data: Path = Path("tidings-data")
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_private(self) -> bool:
        """Return True if only clients on this machine can connect.

        A server on a Unix socket is not private, because a proxy may pass on any client's requests.
        """
        return self.unix_socket is None and self.host in LOOPBACK


def _path(text: str) -> Path | None:
    """Return the path that the file: URL *text* has; None if *text* is empty."""
    if not text:
        return None
    parts = urlsplit(text)
    if parts.scheme != "file" or parts.netloc or len(parts.path) < 2 or parts.query:
        raise ValueError("must be file:///PATH on a server")
    return Path(unquote(parts.path))


@dataclass(frozen=True, slots=True)
class Settings(Shared):
    """The settings of a server."""

    archive: Path | None = setting(
        "TIDINGS_ARCHIVE", "", "folder of the archive: file:///PATH", _path
    )
    coordinator: Path | None = setting(
        "TIDINGS_COORDINATOR",
        "",
        "coordinator of leader elections: file:///PATH, shared by all members",
        _path,
        option="--coordinator",
    )


def parse_options(options: Options) -> Settings:
    """Return the settings in *options*.

    Raises:
        Problem: a setting is unknown, or its value is invalid.
    """
    known = {each.variable: each for each in Settings.declared()}
    for variable in sorted(options.settings.keys() - {*known, _STREAM_SECONDS}):
        raise Problem(f"--setting {variable}: unknown setting")
    if _STREAM_SECONDS in {*options.settings, *options.environment}:
        log.warning(
            "%s has no effect: a server does not limit the duration of event streams",
            _STREAM_SECONDS,
        )
    given = {
        "TIDINGS_FEEDS": options.feeds,
        "TIDINGS_OPEN": "true" if options.is_private else "false",
        "TIDINGS_CORS_ORIGINS": ",".join(options.allow_origins) or NO_ORIGINS,
        **options.environment,
        **feed_options.chain_settings(options),
        **options.settings,
    }
    try:
        return Settings.read(given)
    except WrongSetting as error:
        is_named = error.variable in {*options.settings, *options.environment}
        option = "" if is_named else known[error.variable].option
        raise Problem(str(error).replace(error.variable, option or error.variable, 1)) from None
