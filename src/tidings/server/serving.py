"""Start the parts of a server in order, and stop them in reverse order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tidings.core import limits
from tidings.core.errors import TidingsError
from tidings.core.model.feeds import DEFAULT_FEED, HOST
from tidings.core.settings.profiles import Profile
from tidings.core.version import how_to_install
from tidings.http.outbound.files import restrict
from tidings.http.settings import Setting, WrongSetting, whole
from tidings.server import feed_options, http_server, loop_guard, operating, processes
from tidings.server.app import ServerApp
from tidings.server.feed_options import FeedOptions
from tidings.server.host import Host
from tidings.server.http_server import HostCheck, KnownProxies, networks
from tidings.server.processes import Problem
from tidings.server.settings import LOOPBACK, Options, parse_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidings.server.http_server import Network
    from tidings.server.telemetry import Telemetry

log = logging.getLogger(__name__)
GRACE_S = 2  # time for requests in flight when the server stops
SWITCH_S = 0.0005  # Python's switch interval; its default of 5 ms delays each change of threads
# Threads for event streams, lists and WebSockets; none waits for new pages. Python runs one at a
# time, so more of them would only make the event loop wait longer for its turn.
STREAM_THREADS = 8
MESSAGE_BYTES_MAX = 128 * 1024  # the largest message of a WebSocket client, the same as on a stage
METRICS_EVERY_MS_MAX = 86_400_000  # a day; a much larger number is not a time that Python can wait
# The default is that of OpenTelemetry.
METRICS_INTERVAL = Setting(
    "OTEL_METRIC_EXPORT_INTERVAL", "60000", "ms between exports", whole(1, METRICS_EVERY_MS_MAX)
)
_OTLP = "http/protobuf"

Ready = Callable[[str, str], None]


async def run(options: Options, ready: Ready, stopped: asyncio.Event) -> None:
    """Serve until *stopped*; call *ready* with the HTTP and WebSocket URLs once it is ready.

    Raises:
        Problem: the server cannot start.
    """
    limit_ms, hangup = _prepare(options), _handle_hangups(stopped)
    change, proxies = feed_options.profile_change(options), networks(options.proxies)
    await _check_files(options)
    async with contextlib.AsyncExitStack() as stack:
        opened, options = await asyncio.to_thread(_listen, options)
        listeners = [stack.enter_context(each) for each in opened]
        host = await _host(options)
        stack.push_async_callback(host.stop)
        if change is not None:
            await asyncio.to_thread(_apply, host, change)
        await asyncio.to_thread(host.start)
        await stack.enter_async_context(_exporting(host, options.environment))
        names = frozenset(name.lower() for name in (options.host, *options.allow_hosts))
        host_check = HostCheck(names, host.settings.cors_origins)
        app = ServerApp(host, host_check, processes.find_installed().console)
        renew = await stack.enter_async_context(_serving(app, proxies, host, listeners, options))
        await stack.enter_async_context(_background(_sweep(host)))
        await stack.enter_async_context(_background(_reload_on(hangup, host, options, renew)))
        await stack.enter_async_context(operating.answering(options.data, host))
        urls = _addresses(listeners[0], options)
        if options.demo or options.demo_repo:
            child = await processes.start_demo(
                options.demo_repo, urls[0], asyncio.subprocess.DEVNULL
            )
            stack.push_async_callback(child.end)
        await asyncio.to_thread(_warn_if_closed, host, options.data)
        loop_guard.watch(asyncio.get_running_loop(), limit_ms)
        ready(*urls)
        await stopped.wait()


async def _check_files(options: Options) -> None:
    """Check the content of the files and folders that the server only reads."""
    if options.tls_cert and options.tls_key:
        http_server.check_certificate(options.tls_cert, options.tls_key)
    if options.demo_repo and not await processes.is_repository(options.demo_repo):
        raise Problem(f"--demo-repo {options.demo_repo}: must be a git repository")


def _handle_hangups(stopped: asyncio.Event) -> asyncio.Event:
    """Return an event that is set by each SIGHUP, unless SIGHUP is ignored, as by `nohup`.

    A SIGHUP that follows the end of the terminal sets *stopped* instead.
    """
    hangup, began_at_terminal = asyncio.Event(), _has_terminal()

    def handle() -> None:
        (stopped if began_at_terminal and not _has_terminal() else hangup).set()

    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, handle)
    return hangup


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


async def _reload_on(
    hangup: asyncio.Event, host: Host, options: Options, renew: Callable[[], None]
) -> None:
    """Read the files of certificates and passwords again whenever *hangup* is set."""
    while True:
        await hangup.wait()
        hangup.clear()
        for what, reload in (
            ("certificate", renew),
            ("passwords", partial(_reload_passwords, host, options)),
        ):
            try:
                await asyncio.to_thread(reload)
            except (Problem, OSError) as error:
                log.error("SIGHUP: the %s did not change: %s", what, error)
            except Exception:
                log.exception("SIGHUP: the %s did not change", what)
        log.info("SIGHUP: read the files of certificates and passwords again")


def _reload_passwords(host: Host, options: Options) -> None:
    """Use the current content of the files of passwords."""
    files = FeedOptions(
        read_password_file=options.read_password_file,
        ingest_password_file=options.ingest_password_file,
    )
    known = host.stores.profiles.host_passwords
    change = feed_options.profile_change(files, known)
    if change is not None and change(known, DEFAULT_FEED) != known:
        for feed in (*_apply(host, change), HOST):
            host.profiles.forget(feed)


def _apply(host: Host, change: feed_options.Change) -> list[str]:
    """Apply *change* to the configured feeds and to the host; return the keys of the feeds.

    New feeds begin with the settings of the host. The passwords open the host, too, and are not
    stored for it.
    """
    profiles = host.stores.profiles
    feeds = [key for name in host.settings.feeds if (key := host.directory.find(name))]
    feed_options.apply_change(profiles, feeds, change)
    profiles.host_passwords = change(Profile(), DEFAULT_FEED)  # before `plain` is read with them
    plain = profiles.profile(HOST)
    changed = change(plain, DEFAULT_FEED)
    profiles.save(
        HOST,
        replace(
            changed,
            read_passwords=plain.read_passwords,
            ingest_passwords=plain.ingest_passwords,
            resources=plain.resources,  # a resource has the name of its feed
            max_age_s=plain.max_age_s,
        ),
    )
    return feeds


def _prepare(options: Options) -> float:
    """Configure the process and its event loop; return the limit of CPU for `loop_guard.watch`."""
    value = options.environment.get(loop_guard.VARIABLE, "")
    try:
        limit_ms = loop_guard.parse_limit_ms(value or "0")
    except ValueError:
        rule = "must be a number of milliseconds, or 0 for no limit"
        raise Problem(f"{loop_guard.VARIABLE}={value}: {rule}") from None
    os.umask(0o077)  # only the owner may read the files that this process creates
    sys.setswitchinterval(SWITCH_S)
    if value:
        loop_guard.install()
    streams = ThreadPoolExecutor(STREAM_THREADS, thread_name_prefix="stream")
    asyncio.get_running_loop().set_default_executor(streams)
    return limit_ms


def _warn_if_closed(host: Host, data: Path) -> None:
    """Warn of each feed that has no credential and so refuses every request; name the remedy."""
    if host.settings.open or host.settings.issuer is not None:
        return
    for feed in sorted(host.settings.feeds):
        key = host.directory.find(feed)
        if key is not None and not host.guard.is_protected(key):
            log.warning(
                "the feed %(feed)s is closed: it has no password and no key. Create passwords with"
                " `tidings feed password read --feed %(feed)s --data %(data)s` and the same for"
                " ingest; --setting TIDINGS_OPEN=true opens it to every client",
                {"feed": feed, "data": data},
            )


async def _host(options: Options) -> Host:
    settings = parse_options(options)
    place = f"TIDINGS_ARCHIVE: {settings.archive}"
    try:
        if settings.archive is not None:
            settings.archive.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=settings.archive).close()
        place = f"--data {options.data}"
        options.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        restrict(options.data, 0o700)  # only the owner may read, even in an existing folder
        return await Host.open(options.data / operating.FILE, settings)
    except OSError as error:
        raise Problem(f"{place} cannot be written: {error.strerror}") from None


def _listen(options: Options) -> tuple[list[socket.socket], Options]:
    """Return the sockets of the server, and *options* with the address of sockets from systemd.

    A server is private only if all of these sockets are.
    """
    inherited = processes.inherited(options.environment)
    if not inherited:
        if options.unix_socket is None:
            return processes.listen(options.host, options.port), options
        return [processes.listen_at(options.unix_socket)], options
    names = [each.getsockname() for each in inherited]
    if inherited[0].family == socket.AF_UNIX:
        name = names[0]  # an abstract one is bytes that begin with a zero
        path = f"@{os.fsdecode(name[1:])}" if isinstance(name, bytes) else name
        return inherited, replace(options, unix_socket=Path(path))
    if options.unix_socket is not None:
        raise Problem("--unix-socket cannot be used with the TCP sockets of LISTEN_FDS")
    hosts = sorted((name[0] for name in names), key=LOOPBACK.__contains__)
    return inherited, replace(options, host=hosts[0])


@contextlib.asynccontextmanager
async def _serving(
    app: ServerApp,
    proxies: Sequence[Network],
    host: Host,
    listeners: Sequence[socket.socket],
    options: Options,
) -> AsyncIterator[Callable[[], None]]:
    async with http_server.serving(
        KnownProxies(app, proxies, every=options.unix_socket is not None),
        *listeners,
        grace_s=GRACE_S,
        meters=host.meters,
        posts=host.posts,
        tls_cert=options.tls_cert,
        tls_key=options.tls_key,
        ws_max_size=MESSAGE_BYTES_MAX,
        ws_per_message_deflate=False,
    ) as renew:
        try:
            yield renew
        finally:
            app.end_streams()
            host.sockets.close_all()


@contextlib.asynccontextmanager
async def _exporting(host: Host, environment: Mapping[str, str]) -> AsyncIterator[None]:
    """Export traces and metrics by OTLP if *environment* has an endpoint.

    The names are those of OpenTelemetry's specification. Without an endpoint, nothing is imported.
    """
    traces, metrics = (_exports(signal, environment) for signal in ("TRACES", "METRICS"))
    if not (traces or metrics):
        yield
        return
    if environment.get("OTEL_EXPORTER_OTLP_PROTOCOL", _OTLP) != _OTLP:
        log.warning("OTEL_EXPORTER_OTLP_PROTOCOL has no effect: the server exports %s", _OTLP)
    try:
        telemetry = await asyncio.to_thread(_telemetry, host, environment, traces, metrics)
    except WrongSetting as error:
        raise Problem(str(error)) from None
    except ImportError:
        log.warning("OTLP is not exported; %s", how_to_install("otel"))
        yield
        return
    try:
        yield
    finally:
        await asyncio.to_thread(telemetry.stop)


def _exports(signal: str, environment: Mapping[str, str]) -> bool:
    """Return True if *environment* has an endpoint for *signal* and does not disable it."""
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    return (
        any(environment.get(each) for each in endpoints)
        and environment.get(f"OTEL_{signal}_EXPORTER", "otlp") == "otlp"
        and environment.get("OTEL_SDK_DISABLED", "").lower() != "true"
    )


def _telemetry(
    host: Host, environment: Mapping[str, str], traces: bool, metrics: bool
) -> Telemetry:
    from tidings.server.telemetry import Telemetry

    interval_s = METRICS_INTERVAL.read(environment) / 1000
    return Telemetry(host, traces=traces, metrics=metrics, interval_s=interval_s)


@contextlib.asynccontextmanager
async def _background(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _sweep(host: Host) -> None:
    """Sweep once a minute, like the schedule of a stage."""
    while True:
        await asyncio.sleep(limits.SWEEP_EVERY_MS / 1000)
        try:
            await asyncio.get_running_loop().run_in_executor(host.pool, host.sweep)
        except* (TidingsError, OSError) as errors:  # such as a full disk
            error: Exception = errors
            while isinstance(error, ExceptionGroup):
                error = error.exceptions[0]
            log.warning("a sweep failed; the next one runs in a minute: %s", error)
        except* Exception:
            log.exception("a sweep failed; the next sweep runs in a minute")


def _addresses(listener: socket.socket, options: Options) -> tuple[str, str]:
    if options.unix_socket is not None:
        return f"unix:{options.unix_socket}", ""
    host, port = listener.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    end = "s" if options.tls_cert else ""
    return f"http{end}://{name}:{port}/", f"ws{end}://{name}:{port}/ws"
