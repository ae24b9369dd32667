"""The description of the machine in a report."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import results
from bench.loading import machine

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds 32 MB, named as the worker of a function is."""
    program = "open('/proc/self/comm', 'w').write('ingest'); "
    program += "held = bytearray(b'x' * 2**25); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_memory_is_told_by_what_a_process_is(child: subprocess.Popen[bytes]) -> None:
    """The worker of a function by its function; children count, others do not."""
    found = machine.memory(os.getpid())

    assert 2**25 < found["tidings-local-ingest"] < 2**27
    assert machine.memory(child.pid).keys() == {"tidings-local-ingest"}


def test_cpu_is_that_of_all_descendants() -> None:
    """Also of one that has ended."""
    before_s, ours_s = machine.cpu_s(os.getpid()), time.process_time()
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)

    used_s = machine.cpu_s(os.getpid()) - before_s - (time.process_time() - ours_s)
    assert 0.25 < used_s < 5  # to start Python takes some, more on a busy machine


def test_a_stopped_process_is_seen_to_be_stopped(child: subprocess.Popen[bytes]) -> None:
    """This shows that a fault has happened."""
    child.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)

    assert machine.state(child.pid) == "T"
    child.kill()
    child.wait()
    assert (machine.state(child.pid), machine.resident(child.pid)) == ("", 0)


def test_the_machine_is_described() -> None:
    """Processor, cores, memory, Python and kernel."""
    said = machine.described()

    assert f"{os.cpu_count()} cores" in said
    assert "GB, Python 3." in said
    assert "Linux" in said


def test_a_section_replaces_the_earlier_one_of_its_title(tmp_path: Path) -> None:
    """The others stay as they are, and a new one comes last."""
    page = tmp_path / "RESULTS.md"
    results.save({"One": "## One\n\nold\n", "Two": "## Two\n\nkept\n"}, page)
    results.save({"Three": "## Three\n\nnew\n", "One": "## One\n\nnew\n"}, page)
    text = page.read_text()

    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## One",
        "## Two",
        "## Three",
    ]
    assert ("kept" in text, "old" in text) == (True, False)
