"""The description of this machine, and the CPU time and memory of its processes."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from tests.twin.store import PREFIX
from tidings.aws.config.deployment import FUNCTIONS

_PROC = Path("/proc")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_FUNCTIONS = {each.name for each in FUNCTIONS}  # a twin calls the processes by these names


def described() -> str:
    """Return processor, cores, memory, Python and kernel, in one line."""
    total = os.sysconf("SC_PHYS_PAGES") * _PAGE / 1024**3
    return (
        f"{_processor()}, {os.cpu_count()} cores, {total:.0f} GB, "
        f"Python {platform.python_version()}, {platform.system()} {platform.release()}"
    )


def _processor() -> str:
    try:
        lines = (_PROC / "cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return f"{next(names, 'unknown')} ({platform.machine()})"


def family(pid: int) -> list[int]:
    """Return *pid* and all its descendants; only *pid* on systems without /proc."""
    children: dict[int, list[int]] = {}
    for stat in _PROC.glob("[0-9]*/stat"):
        parent = _fields(stat.parent)
        if parent:
            children.setdefault(int(parent[1]), []).append(int(stat.parent.name))
    found, waiting = [], [pid]
    while waiting:
        found.append(each := waiting.pop())
        waiting += children.get(each, ())
    return found


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of *pid*, its descendants, and their ended children."""
    fields = filter(None, (_fields(_PROC / str(each)) for each in family(pid)))
    return sum(int(ticks) for each in fields for ticks in each[11:15]) / _TICKS_A_SECOND


def process_cpu_s(pid: int) -> float:
    """Return the seconds that *pid* alone has used; 0 once it has ended."""
    return sum(map(int, _fields(_PROC / str(pid))[11:13])) / _TICKS_A_SECOND


def state(pid: int) -> str:
    """Return the state by the kernel: `R`, `S`, `T` (stopped), `Z` ...; "" once it has ended."""
    return next(iter(_fields(_PROC / str(pid))), "")


def memory(pid: int) -> dict[str, int]:
    """Return the resident bytes of the largest process of each kind among *pid* and its
    descendants."""
    found: dict[str, int] = {}
    for each in family(pid):
        if size := resident(each):
            name = called(each)
            found[name] = max(found.get(name, 0), size)
    return found


def resident(pid: int) -> int:
    """Return the resident bytes of *pid*; 0 once it has ended."""
    pages = _read(_PROC / str(pid) / "statm").split()
    return int(pages[1]) * _PAGE if len(pages) > 1 else 0


def called(pid: int) -> str:
    """Return the name of the function that it runs, else of its program."""
    folder = _PROC / str(pid)
    program = _read(folder / "comm").decode().strip()
    if program in _FUNCTIONS:
        return f"{PREFIX}{program}"
    return "engine" if program == "java" else "gateway" if program.startswith("python") else program


def _fields(folder: Path) -> list[str]:
    """Return the fields of `stat` after the process name: state, parent ..."""
    return _read(folder / "stat").decode().rpartition(")")[2].split()


def _read(file: Path) -> bytes:
    """Return the content; empty if the process has ended or belongs to another user."""
    try:
        return file.read_bytes()
    except OSError:
        return b""
