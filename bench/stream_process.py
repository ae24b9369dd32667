"""The twin's process that serves every event stream, as the kernel sees it."""

from __future__ import annotations

from pathlib import Path

_PROC = Path("/proc")


def find(twin: int) -> int:
    """The process id of the streaming function's server, a child of *twin*."""
    for folder in _PROC.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            command = (folder / "cmdline").read_bytes()
            parent = _status(int(folder.name), "PPid")
        except OSError:
            continue  # it ended while we looked
        if parent == twin and b"handler:app" in command:
            return int(folder.name)
    raise LookupError("the twin has no streaming function yet")


def peak_bytes(process: int) -> int:
    """The most it ever had in memory."""
    return _status(process, "VmHWM") * 1024


def resident_bytes(process: int) -> int:
    return _status(process, "VmRSS") * 1024


def _status(process: int, name: str) -> int:
    for line in (_PROC / str(process) / "status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise OSError(f"no {name}")
