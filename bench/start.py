"""`python -m bench.start`: the CPU of starts of the command line, next to an empty interpreter.

The imported modules are what takes the time; tests/style/test_start.py has a budget of them.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Mapping

REPEATED = 10
# Completion needs the name of the program.
RUN = "import sys; sys.argv[0] = 'tidings'; from tidings.__main__ import main; main()"
_NOWHERE = ("--url", "http://127.0.0.1:1", "--timeout", "0.1")
STARTS: Mapping[str, tuple[tuple[str, ...], Mapping[str, str]]] = {
    "tidings --help": (("--help",), {}),
    "completion of tidings": ((), {"COMP_WORDS": "tidings ", "COMP_CWORD": "1"}),
    "completion of consumers": ((), {"COMP_WORDS": "tidings consumers ", "COMP_CWORD": "2"}),
    "tidings post": (("post", "insert", "video", "x", *_NOWHERE), {}),
    "tidings consumers list": (("consumers", "list", *_NOWHERE), {}),
}


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a start; with the variables of a completion, it completes."""
    completes = {"_TIDINGS_COMPLETE": "bash_complete"} if more else {}
    return {**os.environ, **more, **completes}


def cpu_ms(command: list[str], more: Mapping[str, str]) -> float:
    """Return the least CPU of *command* in milliseconds."""
    least_s = float("inf")
    for _ in range(REPEATED):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, env=environment(more), capture_output=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        least_s = min(least_s, used_s)
    return least_s * 1000


def main() -> None:
    empty_ms = cpu_ms([sys.executable, "-c", "pass"], {})
    sys.stdout.write(f"{'empty interpreter':<26}{empty_ms:6.0f} ms\n")
    for name, (words, more) in STARTS.items():
        ms = cpu_ms([sys.executable, "-c", RUN, *words], more)
        sys.stdout.write(
            f"{name:<26}{ms:6.0f} ms, {ms / empty_ms:4.1f} times an empty interpreter\n"
        )


if __name__ == "__main__":
    main()
