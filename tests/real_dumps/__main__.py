"""Two suites of Debian, 60,000 packages each, one synced after the other and checked object by
object.

    python -m tests.real_dumps [FOLDER]

apt fetches the indexes into FOLDER (build/apt) unless they are there.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.real_dumps.debian import CAT, ROOT, Synced, indexes, objects, text_of
from tests.twin import Twin

FEED = "packages"
SUITES = {"bookworm": "2026-07-11T10:16:37Z", "trixie": "2026-09-12T07:55:41Z"}
_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


def fetched(suite: str, folder: Path) -> list[Path]:
    """Fetch the package index of *suite*, by apt, which checks its signature."""
    lists = folder / suite
    if not indexes(lists):
        (lists / "partial").mkdir(parents=True, exist_ok=True)
        source = folder / f"{suite}.list"
        source.write_text(f"deb [signed-by={_KEYS}] http://deb.debian.org/debian {suite} main\n")
        options = {
            "Dir::State::lists": lists,
            "Dir::Etc::sourcelist": source,
            "Dir::Etc::sourceparts": "-",
            "Dir::Cache": folder / "cache",
            "APT::Sandbox::User": "root",
            "Acquire::Languages": "none",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
        }
        given = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
        subprocess.run(["apt-get", "update", "--quiet", *given], check=True)
    return indexes(lists)


def run(*arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "tidings.client.cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout if done.returncode == 0 else done.stdout + done.stderr


def main(folder: Path) -> None:
    if not CAT.exists():
        sys.exit("this needs apt, which knows how to fetch and to read an index of packages")
    texts = {suite: text_of(fetched(suite, folder)) for suite in SUITES}
    with tempfile.TemporaryDirectory() as dumps, Twin("--feeds", FEED) as twin:
        synced = Synced(twin, FEED, Path(dumps), run)
        for suite, date in SUITES.items():
            options, engines = ("--max-delete-share", "0.5"), ("sail", "spark")
            summary = synced.sync(texts[suite], date, *options, engines=engines)
            counts = ", ".join(
                f"{summary[name]:,} {name}" for name in ("creates", "updates", "deletes")
            )
            seconds = f"{summary['seconds']:.0f} s"
            _say(f"{suite}: {len(objects(texts[suite])):,} objects, {counts}, {seconds}, all agree")
        started = time.monotonic()
        found = synced.verify()
        took = time.monotonic() - started
        _say(f"verify: {found['agreeing']:,} rows agree with the log, {took:.0f} s")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(*sys.argv[1:]) if sys.argv[1:] else ROOT / "build/apt")
