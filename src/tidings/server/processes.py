"""The resources of the operating system that a host uses: ports, child processes, installed files.

The host is the process of a server. On Linux, a child process never outlives its host, because the
kernel kills the child when the host dies (`PR_SET_PDEATHSIG`). On other systems, a host ends its
children only if it stops normally.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import logging
import os
import random
import re
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tidings.http.outbound.files import restrict

BACKLOG = 1024  # queued connections; after a restart many clients reconnect at once
SOCKET_MODE = 0o666  # mode of a Unix socket: a proxy that runs as another user may connect
SOCKET_PATH_BYTES_MAX = 107  # of a Unix socket; Linux has an array of 108 bytes for it
# The range of `free_port`. Linux's range for outgoing connections begins above it, at 32,768.
PORTS = (20_000, 32_000)
TERMINATE_S = 2.0  # a child that runs longer after SIGTERM is killed; a host must stop within 5 s
_FIRST_INHERITED = 3  # the first descriptor that systemd passes (sd_listen_fds)
_PR_SET_PDEATHSIG = 1
_FAMILIES = frozenset({socket.AF_INET, socket.AF_INET6, socket.AF_UNIX})
_MISSING = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})  # no such address on this machine
_HERE = Path(__file__).resolve().parent
PACKED = "packed"  # the folder next to this file in the wheel (pyproject.toml)


log = logging.getLogger(__name__)


class Problem(Exception):
    """A host cannot start or continue; the message is one sentence that names the remedy."""


class PortBusy(Problem):
    def __init__(self, host: str, port: int, error: OSError | UnicodeError) -> None:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        if getattr(error, "errno", 0) in (errno.EADDRINUSE, errno.EACCES):
            super().__init__(
                f"cannot listen on {host}:{port} ({reason}); choose another with --port"
            )
        else:
            rule = "must be an address of this machine, or a name of one"
            super().__init__(f"--host {host!r}: {rule} ({reason})")


def listen(host: str, port: int) -> list[socket.socket]:
    """Listen on *port* of all addresses of *host*; 0 selects a free port.

    A host listens first, so that it fails before it starts anything slow. An address that this
    machine lacks is skipped if it has another one: a name often has an IPv4 and an IPv6 address.

    Raises:
        PortBusy: another process uses the port, or *host* is not an address of this machine.
    """
    listeners: list[socket.socket] = []
    missing: OSError | None = None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = dict.fromkeys((family, address) for family, *_, address in found)
        for family, address in addresses:
            local = (address[0], port, *address[2:])
            try:
                listeners.append(_listen(family, local, is_only=len(addresses) == 1))
            except OSError as error:
                if error.errno not in _MISSING:
                    raise
                missing = error
            else:
                port = listeners[0].getsockname()[1]
        if missing is not None and not listeners:
            raise missing
    except (OSError, UnicodeError) as error:  # a name may not be one of DNS
        for listener in listeners:
            listener.close()
        raise PortBusy(host, port, error) from None
    return listeners


def _listen(family: int, address: tuple[object, ...], *, is_only: bool) -> socket.socket:
    # Nagle's algorithm delays answers by 40 ms. asyncio disables it, but only for sockets with an
    # explicit IPPROTO_TCP.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and not is_only:  # the IPv4 address has a socket of its own
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def listen_at(path: Path) -> socket.socket:
    """Listen on the Unix socket *path*; replace a socket that a killed process left.

    Every user may connect to the socket, because a proxy usually runs as another user. The
    permissions of its folder control access.

    Raises:
        Problem: another process listens at *path*, or the folder is not writable.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
            probe.connect(str(path))
            raise Problem(f"another process listens at {path}; choose another --unix-socket")
        if path.is_socket():
            path.unlink()
        listener.bind(str(path))
        restrict(path, SOCKET_MODE)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        reason = (error.strerror or f"{error}, at most {SOCKET_PATH_BYTES_MAX} bytes").lower()
        raise Problem(f"--unix-socket: cannot listen at {path} ({reason})") from None
    return listener


def inherited(environment: Mapping[str, str], first: int = _FIRST_INHERITED) -> list[socket.socket]:
    """Return the sockets that systemd has opened for this process (`LISTEN_FDS`), or [].

    They are the descriptors from *first* on. Connections to them wait while the server restarts.

    Raises:
        Problem: a variable is not a number, or a descriptor is not a listening socket.
    """
    numbers = {}
    for name in ("LISTEN_FDS", "LISTEN_PID"):
        text = environment.get(name) or "0"
        if not re.fullmatch("[0-9]{1,9}", text):
            raise Problem(f"{name}={text}: must be a number, as systemd sets it")
        numbers[name] = int(text)
    count, pid = numbers.values()
    if count and pid != os.getpid():  # the variables are inherited from another service
        log.warning(
            "LISTEN_FDS=%d has no effect: LISTEN_PID=%d is not this process, %d",
            *(count, pid, os.getpid()),
        )
        return []
    listeners: list[socket.socket] = []
    try:
        for number in range(first, first + count):
            listeners.append(_adopt(number, f"LISTEN_FDS={count}: descriptor {number}"))
        if len({each.family == socket.AF_UNIX for each in listeners}) > 1:
            raise Problem(f"LISTEN_FDS={count}: all sockets must be TCP, or all Unix sockets")
    except Problem:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def _adopt(number: int, name: str) -> socket.socket:
    rule = "must be a listening TCP or Unix stream socket (ListenStream=, Accept=no)"
    try:
        listener = socket.socket(fileno=number)
    except OSError as error:
        raise Problem(f"{name} {rule} ({(error.strerror or '').lower()})") from None
    is_stream = listener.type == socket.SOCK_STREAM and listener.family in _FAMILIES
    if not is_stream or not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        listener.close()
        raise Problem(f"{name} {rule}")
    listener.set_inheritable(False)
    return listener


def free_port() -> int:
    """Return a port of the loopback interface that is free now.

    A host can listen on the port later, because the kernel does not use ports of this range for
    outgoing connections.
    """
    while True:
        port = random.randrange(*PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Child:
    """A child process and its process group."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._exit = asyncio.ensure_future(process.wait())

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Return the exit code, or minus the signal that ended the child; None while it runs."""
        return self._process.returncode

    async def wait(self) -> int:
        return await asyncio.shield(self._exit)

    def kill(self) -> None:
        """Kill the child, and all processes in its process group."""
        self._signal(signal.SIGKILL)

    async def end(self) -> None:
        """Terminate the child, and then kill it if it still runs. Return when it has ended."""
        self._signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TERMINATE_S):
                await self.wait()
        self.kill()
        await self.wait()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)


async def start(
    command: Sequence[str],
    *,
    output: IO[bytes] | int,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Child:
    """Start *command* in its own process group, and append its output to *output*.

    Call this function in the main thread: the kernel kills the child when the calling thread ends.
    """
    return Child(
        await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            cwd=folder,
            # Ctrl-C at the terminal then reaches only the host, which ends its children itself.
            start_new_session=True,
            preexec_fn=_tether(),
        )
    )


def _tether() -> Callable[[], None] | None:
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def tether() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        # If the parent died before the call above, the kernel will not kill this child.
        if os.getppid() != parent:
            os._exit(1)

    return tether


class NoPage(Problem):
    def __init__(self, where: str) -> None:
        super().__init__(
            f"the web page /console was not found at or above {where}; install Tidings again"
        )


@dataclass(frozen=True, slots=True)
class Installed:
    """The files of the installation.

    *console* is the folder of the web page `/console`. *history* is the git repository that the
    demo posts, or None if Tidings does not run from a checkout.
    """

    console: Path
    history: Path | None = None


def find_installed(here: Path = _HERE) -> Installed:
    """Return the files that belong to the package in the folder *here*.

    Raises:
        NoPage: the package was installed without the web page `/console`.
    """
    console = find_packed(here, "console")
    if console is None:
        raise NoPage(str(here))
    repository = console.parent
    return Installed(console, repository if (repository / ".git").exists() else None)


def find_packed(here: Path, name: str) -> Path | None:
    """Return the folder *name* of the installed wheel or of the checkout; None if it is missing.

    A wheel has the folder in the package *here*.
    """
    if (here / PACKED).is_dir():
        return here / PACKED / name
    for folder in here.parents:
        if (folder / name).is_dir() and (folder / "pyproject.toml").is_file():
            return folder / name
    return None


async def is_repository(folder: Path) -> bool:
    child = await start(["git", "-C", str(folder), "rev-parse"], output=asyncio.subprocess.DEVNULL)
    return await child.wait() == 0


async def start_demo(repository: Path | None, url: str, output: IO[bytes] | int) -> Child:
    """Start a child process that posts the history of *repository* to *url*.

    Without *repository*, it posts the history of the checkout, or invented events if Tidings does
    not run from a checkout.
    """
    history = repository or find_installed().history
    what = ["--repo", str(history)] if history else ["--made-up"]
    command = [sys.executable, "-m", "tidings.client.demo", "--url", url, *what]
    return await start(command, output=output)
