"""The twin's processes that stream, as the kernel sees them."""

from __future__ import annotations

from pathlib import Path

from tidings.twin.options import PREFIX

_PROC = Path("/proc")


def find(twin: int, function: str = "stream") -> int:
    """The process id of the server of *function*, a child of *twin*."""
    told = f"AWS_LAMBDA_FUNCTION_NAME={PREFIX}{function}".encode()
    for folder in _PROC.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            parent = _status(int(folder.name), "PPid")
        except OSError:
            continue  # it ended while we looked
        if parent == twin and told in environment:
            return int(folder.name)
    raise LookupError(f"the twin has no function {function} yet")


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
