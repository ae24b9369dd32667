"""`tidings agent`: keep the operations of a producer on disk and post them to a feed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import click

from tidings.agent.http import Application, Committing
from tidings.agent.intake import Checker, Notices
from tidings.agent.queue import (
    QUEUED_BYTES_MAX,
    QUEUED_EVENTS_MAX,
    Bound,
    Problem,
    Store,
    default_folder,
    lock_folder,
    now_ms,
)
from tidings.agent.receiver import Receiving, bind_ports, kernel_drops
from tidings.agent.sender import Sender, Target
from tidings.client.address import base_url, operations_url
from tidings.client.cli.options import url_options
from tidings.client.cli.render import printable
from tidings.client.errors import WrongUrl
from tidings.core.errors import InvalidFeed, parse_integer
from tidings.core.model.feeds import check_name
from tidings.server.logs import JSON, configure, log_format_option, report_problem
from tidings.server.output import drain

log = logging.getLogger(__name__)
HOST = "127.0.0.1"  # by default, other machines cannot reach the agent, as UDP has no password
PORT = 8042  # the port of oplog, so that oplog's producers need no change
DRAIN_S = 10.0  # shorter than the time after which a supervisor kills the agent
GRACE_S = 1  # the time in which requests in flight have to end when the agent ends
CHECK_PARTS_S = 0.2  # the interval of the check that all parts still run
# At the end, the check of the last datagrams has at least this time; the next agent does the rest.
CHECK_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of the command line. The *password* of the feed is not part of the `repr`."""

    url: str
    feed: str
    host: str
    port: int
    folder: Path
    bound: Bound
    drain_s: float
    password: str = field(repr=False)
    allow_hosts: tuple[str, ...] = ()
    adopt: int | None = None


class Agent:
    """The parts of one agent, each with its own connection to the queue.

    Raises:
        Problem: the queue, the port or the address cannot be used.
    """

    def __init__(self, options: Options, notices: Notices, lock: TextIOWrapper) -> None:
        self._options = options
        self._lock = lock  # released when this process and the receiver have ended
        self._started_s = time.monotonic()
        self._store = _prepare(options)
        self.held = self._store.totals().events
        self._listener, self._datagrams = bind_ports(options.host, options.port)
        self._receiving = Receiving(self._datagrams, options.folder, options.bound, lock)
        self._inode = os.fstat(self._datagrams.fileno()).st_ino
        target = Target(options.url, options.feed, options.password)
        self._target_url = target.url
        self._sender = Sender(Store(options.folder), options.folder, target, notices)
        self._checker = Checker(
            Store(options.folder), self._receiving.wake_pipe, notices, self._sender.more
        )
        committing = Committing(Store(options.folder), options.bound, self._sender.more)
        hosts = frozenset(name.lower() for name in (options.host, *options.allow_hosts))
        self._application = Application(committing, self._status, hosts)
        self._checking = threading.Thread(target=self._checker.run, daemon=True)
        self._sending = threading.Thread(target=self._sender.run, daemon=True)

    @property
    def address(self) -> str:
        """Return the address in the form that producers use."""
        host, port = self._listener.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def run(self, ready: Callable[[], None], stopped: asyncio.Event) -> int:
        """Serve until *stopped*, then drain. Return how many operations are left on disk.

        Raises:
            Problem: a part of the agent died.
        """
        from tidings.server import http_server  # help texts do not need its packages

        self._checking.start()
        self._sending.start()
        async with http_server.serving(self._application, self._listener, grace_s=GRACE_S):
            ready()
            await self._check_parts(stopped)
        await asyncio.to_thread(self._drain)
        return self._store.totals().events

    async def _check_parts(self, stopped: asyncio.Event) -> None:
        while not stopped.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), CHECK_PARTS_S)
            if self._receiving.has_ended:
                raise Problem("the receiving process has died; start the agent again")
            if not (self._checking.is_alive() and self._sending.is_alive()):
                rule = "check the folder of the queue, then start the agent again"
                raise Problem(f"a thread of the agent has died, as the queue is unusable; {rule}")

    def _drain(self) -> None:
        """Write received datagrams to disk, then post as much as time allows."""
        deadline_s = time.monotonic() + self._options.drain_s
        self._datagrams.close()
        self._receiving.end()
        self._checking.join(max(CHECK_S, deadline_s - time.monotonic()))
        self._sender.end()
        self._sending.join(max(0.0, deadline_s - time.monotonic()))

    def _status(self) -> dict[str, object]:
        """Return the body of `/status`: the ten fields of oplog, and further fields for operators.

        The ten fields have the same meanings as in oplog. No field contains a password.
        """
        totals, oldest_ms = self._store.totals(), self._store.oldest_ms()
        bound, condition = self._options.bound, self._sender.condition
        return {
            "status": condition.state,
            # Fields of oplog that count consumers; an agent does not serve consumers.
            "clients": 0,
            "connections": 0,
            "events_discarded": totals.discarded,
            "events_error": totals.errors + self._application.errors,
            "events_ingested": totals.ingested,
            "events_received": totals.received,
            "events_sent": 0,
            "queue_max_size": bound.events,
            "queue_size": totals.events,
            "events_refused": totals.refused,
            "kernel_drops": kernel_drops(self._inode),
            "last_error": condition.error,
            "last_error_ms": condition.error_ms,
            "oldest_queued_ms": None if oldest_ms is None else max(0, now_ms() - oldest_ms),
            "queue_bytes": totals.bytes,
            "queue_max_bytes": bound.bytes,
            "retries": condition.retries,
            "target": self._target_url,
            "uptime_s": int(time.monotonic() - self._started_s),
        }


def _prepare(options: Options) -> Store:
    try:
        store = Store(options.folder)
        store.prepare(options.feed, base_url(options.url), options.adopt)
    except sqlite3.Error as error:
        raise Problem(f"cannot use the queue in {options.folder}: {error}") from None
    return store


def _address(ctx: click.Context, param: click.Parameter, text: str) -> tuple[str, int]:
    """Parse `HOST:PORT`, `HOST`, `:PORT` (all addresses, as in oplog) or `[IPV6]:PORT`."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(PORT)
    try:
        return host.strip("[]") or "0.0.0.0", parse_integer(port, 0, 65_535)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not HOST:PORT", ctx, param) from None


def _default_folder() -> Path:
    state_home = os.environ.get("XDG_STATE_HOME", "")  # noqa: TID251 (a folder of the user)
    return default_folder(Path.home(), state_home)


@click.command()
@url_options
@click.option(
    "--listen",
    callback=_address,
    default=f"{HOST}:{PORT}",
    show_default=True,
    metavar="HOST:PORT",
    help="Listen here for UDP and HTTP; `:8042` listens on all addresses of this machine.",
)
@click.option(
    "--allow-host",
    "allow_hosts",
    multiple=True,
    metavar="NAME",
    help="Accept HTTP requests to this name, not only to localhost and IP addresses; repeatable.",
)
@click.option(
    "--queue-dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the queue.  [default: tidings/agent below ~/.local/state]",
)
@click.option(
    "--max-queued-events",
    type=click.IntRange(1),
    default=QUEUED_EVENTS_MAX,
    show_default=True,
    help="Maximum number of queued operations.",
)
@click.option(
    "--max-queued-bytes",
    type=click.IntRange(1),
    default=QUEUED_BYTES_MAX,
    show_default=True,
    help="Maximum number of queued bytes.",
)
@click.option(
    "--adopt",
    type=click.IntRange(1),
    metavar="OPERATIONS",
    help="Send this number of operations here that are queued for another feed or address.",
)
@log_format_option
@click.option(
    "--drain-seconds",
    "drain_s",
    type=click.FloatRange(0),
    default=DRAIN_S,
    show_default=True,
    help="Maximum time to post queued operations when the agent is stopped.",
)
def agent(
    url: str,
    feed: str,
    listen: tuple[str, int],
    folder: Path | None,
    max_queued_events: int,
    max_queued_bytes: int,
    log_format: str,
    **others: Any,
) -> None:
    """Accept operations over UDP and HTTP, store them on disk, and post them to a feed in batches.

    The agent runs on the machine of a producer, so that the producer never waits for the network. A
    datagram is one operation in JSON. A POST to / is answered with 204 once its operations are on
    disk. GET /status returns counters. The password of the feed is never shown.

    \b
    Examples:
      tidings agent --url https://feed.example --password-file ~/ingest-password
      tidings agent --url http://127.0.0.1:8042 --listen 127.0.0.1:8043
      echo -n '{"event":"update","type":"a","id":"b"}' | nc -u -w0 127.0.0.1 8043
      curl http://127.0.0.1:8043/status

    \b
    Exit codes:
      0  ended by Ctrl-C or SIGTERM; the next agent posts what is left on disk
      1  the agent could not start or continue; one sentence gives the reason
      2  usage
    """
    if not url:
        raise click.UsageError("name the feed with --url, TIDINGS_URL or --context")
    try:
        operations_url(url, check_name(feed))
    except (WrongUrl, InvalidFeed) as error:
        raise click.UsageError(str(error)) from None
    wanted = Options(
        url=url,
        feed=feed,
        host=listen[0],
        port=listen[1],
        folder=folder or _default_folder(),
        bound=Bound(max_queued_events, max_queued_bytes),
        **others,
    )
    configure(log_format, "tidings-agent")
    say = _say_as_json if log_format == JSON else _say
    try:
        left = asyncio.run(_run(wanted, say))
    except Problem as problem:
        report_problem(log_format, "tidings agent", problem)
        sys.exit(1)
    click.echo(f"tidings agent ended, {left:,} operations left in {wanted.folder}")
    drain()
    # A request that still waits for the feed must not delay the exit.
    os._exit(0)


async def _run(wanted: Options, say: Callable[[str], None]) -> int:
    stopped = asyncio.Event()
    hangup = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN  # ignored by `nohup`
    for number in (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hangup else [])):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    running = Agent(wanted, Notices(say), lock_folder(wanted.folder))

    def ready() -> None:
        click.echo(f"tidings agent ready {running.address}, {running.held:,} operations queued")

    return await running.run(ready, stopped)


def _say(line: str) -> None:
    click.echo(f"tidings agent: {printable(line)}", err=True)


def _say_as_json(line: str) -> None:
    log.warning("%s", printable(line))
