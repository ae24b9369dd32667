"""
Child processes that cannot outlive their host, however it ends.

On Linux the kernel kills a child when the host dies (`PR_SET_PDEATHSIG`). On other systems only a
host that stops in order ends its children; after a crash the workers of a twin stop because their
Runtime API is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

TERMINATE_S = 2.0  # after this a child is killed; a host must stop within 5 s

_PR_SET_PDEATHSIG = 1


class Child:
    """A running child and its process group."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._exit = asyncio.ensure_future(process.wait())

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Return the exit code; negative: the signal that ended it; None: it is running."""
        return self._process.returncode

    async def wait(self) -> int:
        return await asyncio.shield(self._exit)

    def kill(self) -> None:
        """Kill the child and all processes it started."""
        self._signal(signal.SIGKILL)

    async def end(self) -> None:
        """Terminate the child; kill it if it does not end."""
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
    """
    Start *command* in its own process group, and append its output to *output*.

    It must be called from the main thread: the kernel ties the child to the calling thread.
    """
    return Child(
        await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            cwd=folder,
            # A Ctrl-C at the terminal reaches the host alone, which then ends its children.
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
        # The parent may have died before the line above.
        if os.getppid() != parent:
            os._exit(1)

    return tether
