"""`python -m tests.fuzz [PARSER...] [--seconds N] [--runs N]`: bytes for parsers, guided by
coverage.

Each parser runs in a process of its own; an input that it fails on is written to the current
folder as `crash-<hash>`, and the command ends with 1.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

# Not through tests/fuzz/parsers.py: modules imported before `main` are not instrumented.
_RSS_MB = 1024  # a parser that holds more for a few KB of input is a finding
_SLOW_S = 10  # so is one that takes longer for them


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="PARSER")
    parser.add_argument("--seconds", type=int, default=60, help="for each parser")
    parser.add_argument("--runs", type=int, default=-1, help="at most, for each parser")
    chosen = parser.parse_args()
    import atheris  # type: ignore[import-untyped, unused-ignore]

    with atheris.instrument_imports(include=["tidings.core"]):
        from tests.fuzz import parsers
    limits = (f"-max_total_time={chosen.seconds}", f"-runs={chosen.runs}")
    names = chosen.names or parsers.PARSERS
    failed = [
        name for name in names if not _run(atheris, name, parsers.SEEDS.get(name, ()), limits)
    ]
    sys.stdout.write(f"failed: {', '.join(failed)}\n" if failed else "nothing was found\n")
    return bool(failed)


def _run(atheris: ModuleType, name: str, seeds: Sequence[bytes], limits: Sequence[str]) -> bool:
    """Fuzz in a process of its own, which libFuzzer ends; a fork, because instrumenting takes most
    of a short run.
    """
    if pid := os.fork():
        return os.waitpid(pid, 0)[1] == 0
    from tests.fuzz import parsers

    with tempfile.TemporaryDirectory() as corpus:
        for at, seed in enumerate(seeds):
            (Path(corpus) / str(at)).write_bytes(seed)
        fixed = ("-seed=1", "-max_len=4096", f"-rss_limit_mb={_RSS_MB}", f"-timeout={_SLOW_S}")
        atheris.Setup(
            [sys.argv[0], *limits, *fixed, "-verbosity=0", corpus],
            lambda data: void(parsers.read(name, data)),
        )
        atheris.Fuzz()
    os._exit(1)  # not reached


def void(_: object) -> None:
    """libFuzzer takes an answer for a verdict."""


if __name__ == "__main__":
    sys.exit(main())
