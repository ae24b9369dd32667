"""Starts of `python -m tidings...` as forks of a process that has imported what they import.

The imports of a server take a second of CPU, and the tests start hundreds of servers. The first
start of each module in a process of pytest is a usual one, so imports are tested, too; so are all
starts of `python -m tidings`, of the program `tidings`, and on other systems than Linux.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import inspect
import io
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, TextIO

# The imports of each module that are executed only when it runs.
PRELOADED = {
    "tidings.server": ("tidings.server.serving", "uvloop", "bcrypt", "encodings.idna"),
    "tidings.client.cli.main": (
        *(
            "tidings.client.cli.main",
            "httpcore",
            "httpcore._backends.sync",
            "h11",
            "encodings.idna",
        ),
        *(
            f"tidings.client.cli.{name}"
            for name in ("clients", "consumers", "feeds", "get", "post")
        ),
        *(f"tidings.client.cli.{name}" for name in ("relays", "settings", "status", "tail")),
        "tidings.client.listener",
    ),
}
# Python itself reads these variables when it starts.
_OF_START = ("PYTHON", "LC_", "LANG", "LD_")
_MESSAGE_BYTES = 180_000  # a message of this size fits into the buffer of a socket
_PR_SET_CHILD_SUBREAPER = 36
_ENVIRONMENT = {**os.environ}
_execute_child: Any = vars(subprocess.Popen)["_execute_child"]


class _Forking:
    """The process that forks the others, from the second start of a module on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started: set[str] = set()
        self._control: socket.socket | None = None
        self._owner = 0

    def start(self, order: Mapping[str, Any], numbers: list[int]) -> int | None:
        """Return the id of a new child of this process; None if the start must be a usual one."""
        message = json.dumps(order).encode()
        with self._lock:
            module = order["arguments"][2]
            if module not in self._started or len(message) > _MESSAGE_BYTES:
                self._started.add(module)
                return None
            if self._control is None or self._owner != os.getpid():
                self._control, self._owner = _started(), os.getpid()
            control, prctl = self._control, ctypes.CDLL(None).prctl
            # The new process loses its parent, and becomes a child of this one.
            prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            try:
                socket.send_fds(control, [message], numbers)
                return int(control.recv(64))
            except (OSError, ValueError):  # it has ended: a usual start shows why
                self._control = None
                return None
            finally:
                prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def install() -> None:
    """Let `subprocess` start modules of Tidings as forks."""
    if sys.platform == "linux":
        setattr(subprocess.Popen, "_execute_child", _execute)  # noqa: B010 mypy knows no such name


_FORKING = _Forking()
_PARAMETERS = inspect.signature(_execute_child)


def _execute(self: Any, *arguments: Any) -> None:
    given = _PARAMETERS.bind(self, *arguments).arguments
    order = _order(given)
    if order is not None:
        pipes = ("p2cread", "c2pwrite", "errwrite")
        numbers = [given[pipe] if given[pipe] != -1 else at for at, pipe in enumerate(pipes)]
        pid = _FORKING.start(order, numbers)
        if pid is not None:
            self.pid, self._child_created = pid, True
            self._close_pipe_fds(*(given[name] for name in _PIPES))
            return
    _execute_child(self, *arguments)


_PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
_UNUSUAL = ("executable", "preexec_fn", "pass_fds", "shell", "start_new_session")


def _order(given: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return what the fork becomes; None if the start must be a usual one."""
    words = given["args"]
    is_ours = isinstance(words, list | tuple) and [*words[:2]] == [sys.executable, "-m"]
    if not is_ours or words[2] not in PRELOADED or any(given[name] for name in _UNUSUAL):
        return None
    environment = {**(os.environ if given["env"] is None else given["env"])}
    if _of_start(environment) != _of_start(_ENVIRONMENT) or given.get("process_group", -1) != -1:
        return None
    return {
        "arguments": [os.fspath(word) for word in words],
        "environment": environment,
        "folder": os.fspath(given["cwd"] or os.getcwd()),
    }


def _of_start(environment: Mapping[str, str]) -> Mapping[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_OF_START)}


def _started() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        number = theirs.fileno()
        command = [sys.executable, __file__, str(number)]
        process = subprocess.Popen(command, env=_ENVIRONMENT, pass_fds=[number])
    atexit.register(process.wait)
    atexit.register(ours.close)  # before: this ends the process
    return ours


def _serve(control: socket.socket) -> Mapping[str, Any] | None:
    """Fork until the tests end; return what it becomes in each fork, and None at the end."""
    while True:
        message, numbers, _, _ = socket.recv_fds(control, 2 * _MESSAGE_BYTES, 3)
        if not message:
            return None
        order: Mapping[str, Any] = json.loads(message)
        for name in PRELOADED[order["arguments"][2]]:
            importlib.import_module(name)
        gc.freeze()
        reading, writing = os.pipe()
        between = os.fork()
        if between == 0:
            pid = os.fork()
            if pid:
                os.write(writing, str(pid).encode())
                os._exit(0)
            for at, number in enumerate(numbers):
                os.dup2(number, at)
            for number in (*numbers, reading, writing, control.detach()):
                os.close(number)
            return order
        os.waitpid(between, 0)
        control.send(os.read(reading, 64))
        for number in (*numbers, reading, writing):
            os.close(number)


def _text(number: int, mode: str, like: TextIO) -> TextIO:
    by_line = number == 2 or os.isatty(number)
    file = open(number, f"{mode}b", closefd=False)  # noqa: SIM115 open until the process ends
    return io.TextIOWrapper(file, like.encoding, like.errors, line_buffering=by_line)


def _become(order: Mapping[str, Any]) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(order["environment"])
    time.tzset()
    os.chdir(order["folder"])
    sys.path[0] = os.getcwd()
    sys.stdin = _text(0, "r", sys.stdin)
    sys.stdout = _text(1, "w", sys.stdout)
    sys.stderr = _text(2, "w", sys.stderr)
    _, _, module, *rest = sys.orig_argv = order["arguments"]
    sys.argv = [module, *rest]
    # Python would warn of *module*. The server notes the time when its modules are imported.
    for name in [each for each in sys.modules if each.startswith((module, "tidings.server"))]:
        del sys.modules[name]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    becoming = _serve(socket.socket(fileno=int(sys.argv[1])))
    if becoming is not None:
        _become(becoming)
