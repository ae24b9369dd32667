"""`python -m tests.fuzz [PARSER...] [--seconds N] [--runs N]`: bytes for parsers, guided by
coverage.

Each parser runs in a process of its own; an input that it fails on is written to the current
folder as `crash-<hash>`, and the command ends with 1.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

# Not through tests/fuzz/parsers.py: modules imported before `main` are not instrumented.
_RSS_MB = 1024  # a parser that holds more for a few KB of input is a finding
_SLOW_S = 10  # so is one that takes longer for them


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="PARSER")
    parser.add_argument("--seconds", type=int, default=60, help="for each parser")
    parser.add_argument("--runs", type=int, default=-1, help="at most, for each parser")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        _fuzz(chosen.names[0], chosen.seconds, chosen.runs)
    failed = [name for name in chosen.names or _all() if not _run(name, chosen)]
    sys.stdout.write(f"failed: {', '.join(failed)}\n" if failed else "nothing was found\n")
    return bool(failed)


def _all() -> list[str]:
    from tests.fuzz.parsers import PARSERS

    return [*PARSERS]


def _run(name: str, chosen: argparse.Namespace) -> bool:
    arguments = ["--one", f"--seconds={chosen.seconds}", f"--runs={chosen.runs}"]
    done = subprocess.run([sys.executable, "-m", "tests.fuzz", name, *arguments], check=False)
    return done.returncode == 0


def _fuzz(name: str, seconds: int, runs: int) -> None:
    """Never returns: libFuzzer ends the process."""
    import atheris  # type: ignore[import-untyped, unused-ignore]

    with atheris.instrument_imports(include=["tidings.core"]):
        from tests.fuzz import parsers
    with tempfile.TemporaryDirectory() as corpus:
        for at, seed in enumerate(parsers.SEEDS.get(name, ())):
            (Path(corpus) / str(at)).write_bytes(seed)
        limits = [f"-max_total_time={seconds}", f"-runs={runs}", "-seed=1", "-max_len=4096"]
        quiet = [f"-rss_limit_mb={_RSS_MB}", f"-timeout={_SLOW_S}", "-verbosity=0"]
        atheris.Setup(
            [sys.argv[0], *limits, *quiet, corpus], lambda data: void(parsers.read(name, data))
        )
        atheris.Fuzz()


def void(_: object) -> None:
    """libFuzzer takes an answer for a verdict."""


if __name__ == "__main__":
    sys.exit(main())
