"""The commands `tidings serve`, which serves feeds from one process, and `tidings backup`."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import click

from tidings.core import limits
from tidings.core.errors import Unavailable
from tidings.core.settings.documents import SETTINGS, Setting
from tidings.server import logs, operating
from tidings.server.feed_options import DEFAULT_MAX_AGE_S
from tidings.server.output import drain
from tidings.server.processes import Problem

FILE = click.Path(dir_okay=False, exists=True, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)
DEFAULT_PORT = 8042
STOP_S = 8.0  # time from a signal to the end of the process; requests in flight get two seconds

_OF_ADDRESS = (
    click.option(
        "--host",
        default="127.0.0.1",
        show_default=True,
        help="Address to listen on, or a name, which stands for all its addresses.",
    ),
    click.option(
        "--port",
        type=click.IntRange(0, 65535),
        default=DEFAULT_PORT,
        show_default=True,
        help="Port to listen on; 0 selects a free port.",
    ),
    click.option(
        "--allow-host",
        "allow_hosts",
        multiple=True,
        metavar="NAME",
        help="Accept this host name too, besides localhost and IP addresses; may be repeated.",
    ),
    click.option(
        "--allow-origin",
        "allow_origins",
        multiple=True,
        metavar="ORIGIN",
        help="Let pages of this origin, http://HOST:PORT, read and post; with `*`, pages of all"
        " origins may read. May be repeated.",
    ),
)
_FEED_SETTINGS = [
    each for each in SETTINGS.values() if each.of_host and each.name not in ("resources", "max_age")
]


def _option(setting: Setting) -> Any:
    name, values = setting.option, setting.schema.get("enum")
    kinds = {"integer": int, "boolean": bool}
    return click.option(
        f"--{name}/--no-{name}" if setting.schema["type"] == "boolean" else f"--{name}",
        setting.name,
        type=click.Choice(values) if values else kinds.get(setting.schema["type"]),
        default=None,
        help=setting.meaning,
    )


_OF_FEEDS = (
    click.option("--feeds", default="main", show_default=True, help="Feeds, comma-separated."),
    click.option(
        "--setting",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        help="Value of a setting (docs/operations/OPERATIONS.md), e.g. TIDINGS_RETENTION_HOURS=1;"
        " may be repeated.",
    ),
    *map(_option, _FEED_SETTINGS),
    click.option(
        "--resource",
        "resources",
        multiple=True,
        metavar="NAME:SUB,SUB[=/ROUTE]",
        help="Declare a resource of Triton to which listeners register; may be repeated.",
    ),
    click.option(
        "--max-age",
        type=click.IntRange(limits.MAX_AGE_S_MIN),
        default=DEFAULT_MAX_AGE_S,
        show_default=True,
        help="Time in seconds for which items of resources are kept.",
    ),
    click.option("--read-password-file", type=FILE, help="File with the password for readers."),
    click.option("--ingest-password-file", type=FILE, help="File with the password for producers."),
    click.option("--demo", is_flag=True, help="Post example changes, for a demonstration."),
    click.option(
        "--demo-repo",
        type=click.Path(file_okay=False, exists=True, path_type=Path),
        help="Post the history of this git repository, for a demonstration (default of --demo: the"
        " checkout's history).",
    ),
)
_OF_COPIES = (
    click.option(
        "--chain-from",
        metavar="URL",
        help="Copy the feed at this address under the same name, and follow it.",
    ),
    click.option(
        "--chain",
        "chains",
        multiple=True,
        metavar="FEED=URL",
        help="Copy the feed at URL under the name FEED, and follow it; may be repeated.",
    ),
    click.option(
        "--source",
        multiple=True,
        metavar="NAME=VALUE",
        help="Set how feeds are copied (docs/guides/CHAINING.md), e.g. types=video or"
        " fall_off=wait; may be repeated.",
    ),
    click.option(
        "--coordinator",
        default="",
        metavar="URL",
        help="URL of the coordinator of leader elections, the same for all members. For `serve`, it"
        " names a file: file:///PATH.",
    ),
)


def host_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of every host: its address, its feeds, and their upstreams."""

    @functools.wraps(command)
    def with_settings(**options: Any) -> Any:
        given = {each.name: options.pop(each.name) for each in _FEED_SETTINGS}
        named = {name: value for name, value in given.items() if value is not None}
        return command(feed_settings=named, **options)

    for option in reversed((*_OF_ADDRESS, *_OF_FEEDS, *_OF_COPIES)):
        with_settings = option(with_settings)
    return with_settings


@click.command()
@host_options
@click.option(
    "--data",
    type=FOLDER,
    default=Path("tidings-data"),
    show_default=True,
    help="Folder of the server's data; created if it is missing.",
)
@click.option(
    "--unix-socket",
    type=click.Path(path_type=Path),
    help="Listen at this Unix socket, for a proxy, and not at --host and --port. Feeds then need a"
    " password or a key.",
)
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="Believe the headers Forwarded and X-Forwarded-* of a proxy at this IP address or"
    " network; may be repeated. At a Unix socket these headers are always believed. The server"
    " ignores them in requests of all other clients.",
)
@click.option("--tls-cert", type=FILE, help="File of the certificate chain, PEM; needs --tls-key.")
@click.option("--tls-key", type=FILE, help="File of the certificate's private key, PEM.")
@click.option("--verbose", is_flag=True, help="Log normal events too, not only problems.")
@logs.log_format_option
def serve(settings: tuple[str, ...], verbose: bool, log_format: str, **options: Any) -> None:
    """Serve feeds from this process: HTTP, event streams, WebSockets, and the web page /console.

    All data are in one SQLite file in the folder --data. An operation is acknowledged when it is
    on disk.
    A feed without a password or key is open on the loopback interface. On another address, or at
    a Unix socket, such a feed refuses every request, unless --setting TIDINGS_OPEN=true opens it.

    \b
    Examples:
      tidings serve --demo                 open http://127.0.0.1:8042/
      tidings serve --data /var/lib/tidings --feeds main,orders
      tidings serve --host 0.0.0.0 --read-password-file r.txt \\
        --ingest-password-file i.txt
      tidings serve --setting TIDINGS_RETENTION_HOURS=24
      tidings serve --port 8052 --data copy --chain-from http://HOST/feeds/main

    \b
    Exit codes:
      0  ended by Ctrl-C or SIGTERM
      1  the server could not start; one sentence says why
      2  usage
    """
    from tidings.server import serving  # help texts do not need its packages
    from tidings.server.settings import Options

    if (options["tls_cert"] is None) != (options["tls_key"] is None):
        raise click.UsageError("--tls-cert and --tls-key must be given together")
    logs.configure(log_format, "tidings-serve", logging.INFO if verbose else logging.WARNING)
    try:
        given = Options(settings=pairs(settings), environment=os.environ, **options)
        run(serving.run, "serve", given)
    except (Problem, Unavailable, OSError) as problem:  # an OSError names its file
        logs.report_problem(log_format, "tidings serve", problem)
        sys.exit(1)


@click.command()
@click.argument("target", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--data",
    type=FOLDER,
    default=Path("tidings-data"),
    show_default=True,
    help="Folder of the server's data.",
)
def backup(target: Path, data: Path) -> None:
    """Copy the feeds of a server, running or stopped, to the new file TARGET.

    TARGET has everything that was acknowledged when the copy began. A running server stays
    available during the copy. To restore a backup, put TARGET into an empty folder under the name
    feed.db, and serve this folder with --data.

    \b
    Examples:
      tidings backup /backups/monday.db
      tidings backup --data /var/lib/tidings /backups/monday.db

    \b
    Exit codes:
      0  TARGET is complete and on disk
      1  TARGET was not written; one sentence says why
      2  usage
    """
    try:
        operating.back_up(data, target)
    except (Problem, Unavailable) as error:
        click.echo(f"tidings backup: {error}", err=True)
        sys.exit(1)


def run(host: Callable[..., Any], name: str, options: Any, stop_s: float = STOP_S) -> None:
    """Run *host* with *options* as the command *name*, until a signal.

    The process ends within *stop_s* of the signal, by force if necessary.

    Raises:
        Problem: the host cannot start or continue.
    """
    import uvloop  # help texts do not need it

    uvloop.run(_run(host, name, options, stop_s))


async def _run(host: Callable[..., Any], name: str, options: Any, stop_s: float) -> None:
    """Run *host* until a signal arrives. A signal before the host is ready cancels its start."""
    started, stopped = asyncio.Event(), asyncio.Event()

    def ready(http_url: str, ws_url: str) -> None:
        gc.collect()
        gc.freeze()  # a full collection would stop the loop for longer than all requests in it
        started.set()
        click.echo(f"tidings {name} ready {http_url} {ws_url}")
        if sys.stderr.isatty():  # a person has started the server at a terminal
            # Clients of this machine cannot rely on the addresses that mean all of its interfaces.
            near = http_url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
            click.echo(f"open {near}, or run {_tail(near)}; Ctrl-C ends it", err=True)

    running = asyncio.ensure_future(host(options, ready, stopped))

    def stop() -> None:
        stopped.set()
        if not started.is_set():
            running.cancel()

    end_by_force = _ending_by_force(name, stop_s)
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # by `nohup`
        numbers.remove(signal.SIGHUP)
    for number in numbers:
        asyncio.get_running_loop().add_signal_handler(number, stop)
        # uvloop receives signals through a file descriptor, and then calls `stop`. This second
        # handler does not depend on the loop, so it also runs if the loop hangs.
        signal.signal(number, end_by_force)
    with contextlib.suppress(asyncio.CancelledError):
        await running


def _ending_by_force(name: str, stop_s: float) -> Callable[..., object]:
    """Return a signal handler that ends the process *stop_s* after the first signal.

    The forced end is as safe as a crash, because all acknowledged data is on disk.
    """
    waiting, signalling = os.pipe()

    def wait() -> None:
        os.read(waiting, 1)
        time.sleep(stop_s)
        sys.stderr.write(f"tidings {name}: not ended {stop_s:.0f} s after a signal; exiting now\n")
        drain()
        os._exit(1)

    Thread(target=wait, name="end-by-force", daemon=True).start()
    return lambda *_: os.write(signalling, b"s")


def _tail(url: str) -> str:
    at = "" if url.rstrip("/") == f"http://127.0.0.1:{DEFAULT_PORT}" else f" --url {url}"
    return f"`tidings tail --from 0{at}`"


def pairs(settings: tuple[str, ...]) -> dict[str, str]:
    """Return *settings* as a mapping.

    Raises:
        Problem: one of *settings* is not NAME=VALUE.
    """
    values = {}
    for text in settings:
        name, separator, value = text.partition("=")
        if not separator:
            raise Problem(f"--setting {text}: must be NAME=VALUE")
        values[name] = value
    return values
