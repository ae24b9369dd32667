"""Processes that the lanes start: waited for until they answer, and not a moment after they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.emulator import free_port
from infra.processes import answers, stopped_at_exit

SERVER = "import http.server as s; s.test(s.SimpleHTTPRequestHandler, bind='127.0.0.1', port={})"


class Ended(Exception):
    """It will never answer."""


def test_a_process_is_waited_for_and_stopped(tmp_path: Path) -> None:
    """Nothing answers before it has begun, nor after the block."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    before = answers(url, 0.1, lambda: None)
    command = [sys.executable, "-c", SERVER.format(port)]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(
            command, cwd=tmp_path, stdout=log, stderr=log, start_new_session=True
        ) as process,
        stopped_at_exit(process),
    ):
        assert answers(url, 60, lambda: None)

    assert (before, answers(url, 0.1, lambda: None)) == (False, False)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A signal interrupts us, whatever a library that was here before us made of it."""
    kept = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, kept)


STUBBORN = "import signal, time; signal.signal(15, lambda *_: print('no', flush=True)); {}"


def test_a_second_interruption_leaves_nothing_behind(interruptible: None) -> None:
    """While one that does not want to end is waited for."""
    command = [sys.executable, "-c", STUBBORN.format("print('up', flush=True); time.sleep(30)")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        impatient = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt), stopped_at_exit(process):
            impatient.start()

    assert process.returncode == -signal.SIGKILL


def test_what_ended_is_not_waited_for() -> None:
    """The caller says so, whatever time is left."""

    def check() -> None:
        raise Ended

    with pytest.raises(Ended):
        answers(f"http://127.0.0.1:{free_port()}/", 60, check)
