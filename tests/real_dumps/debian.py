"""Real dumps: package indexes of Debian, and a feed that is synced with them one after the other.

The expected contents of the feed are read from the indexes a second time, by other code than the
example that makes dumps of them; the actual ones are received by a consumer that copies it.
"""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.consumers import Objects, replicate
from tests.twin import Twin
from tidings.sync.job import SUMMARY

ROOT = Path(__file__).parents[2]
LISTS = Path("/var/lib/apt/lists")
CAT = Path("/usr/lib/apt/apt-helper")  # it knows how apt compresses
_FIELD = re.compile(r"^(Package|Architecture|Version|SHA256|Source|Section): *(.*)$", re.M)


def indexes(folder: Path = LISTS) -> list[Path]:
    """Return the package indexes that apt keeps in *folder*, the largest first."""
    found = folder.glob("*_Packages*") if CAT.exists() else ()
    return sorted(found, key=lambda path: path.stat().st_size, reverse=True)


def text_of(paths: Sequence[Path], one_in: int = 1) -> str:
    """*paths* as one index; of every *one_in* names one, the same ones of each index."""
    command = [str(CAT), "cat-file", *map(str, paths)]
    said = subprocess.run(command, capture_output=True, check=True).stdout.decode()
    packages = re.findall(r"^Package: .*?(?=^Package: |\Z)", said, re.M | re.S)
    chosen = (
        each for each in packages if zlib.crc32(each.split("\n", 1)[0].encode()) % one_in == 0
    )
    return "".join(f"{each.rstrip()}\n\n" for each in chosen)


def objects(text: str) -> Objects:
    """Return the objects of an index, without times; of a package in it twice, the last."""
    found: Objects = {}
    for stanza in text.split("\n\n"):
        given: dict[str, str] = dict(_FIELD.findall(stanza))
        if given:
            name = f"{given['Package']}:{given['Architecture']}"
            source = given.get("Source", given["Package"]).partition(" ")[0]
            found["package", name] = {
                "type": "package",
                "id": name,
                "parents": [f"source/{source}", f"section/{given['Section']}"],
                "data": {"version": given["Version"], "sha256": given["SHA256"]},
            }
    return found


def dumped(text: str, date: str, *before: Path) -> bytes:
    """Return the example's dump of the index *text*."""
    script = ROOT / "examples/python/debian_dump.py"
    command = [sys.executable, str(script), date, *map(str, before)]
    return subprocess.run(command, input=text.encode(), capture_output=True, check=True).stdout


@dataclass(frozen=True)
class Expected:
    """The changes that a dump has to cause."""

    creates: int
    updates: int
    deletes: int

    @staticmethod
    def of(before: Objects, after: Objects) -> Expected:
        return Expected(
            creates=len(after.keys() - before.keys()),
            updates=sum(before[key] != after[key] for key in after.keys() & before.keys()),
            deletes=len(before.keys() - after.keys()),
        )


@dataclass
class Synced:
    """*feed* of *twin*, dumps of it in *folder*, and *run*, which runs `tidings` with arguments."""

    twin: Twin
    feed: str
    folder: Path
    run: Callable[..., tuple[int, str]]
    held: Objects = field(default_factory=dict)
    _dumps: list[Path] = field(default_factory=list)

    @property
    def where(self) -> list[str]:
        return ["--feed", self.feed, "--endpoint-url", self.twin.dynamodb_url]

    def sync(
        self, text: str, date: str, *options: str, engines: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Make the feed agree with the index *text* of *date*, and check every object. Before, each
        of *engines* makes a plan: the same ones.
        """
        dump = self._dumped(text, date)
        plans = [self._planned(dump, engine, *options) for engine in engines]
        assert all(plan == plans[0] for plan in plans)
        started = time.monotonic()
        code, said = self.run("sync", str(dump), *self.where, "--json", *options)
        seconds = time.monotonic() - started
        assert code == 0, said
        summary: dict[str, Any] = json.loads(said)
        after = objects(text)
        expected = Expected.of(self.held, after)
        counts = {name: summary[name] for name in ("creates", "updates", "deletes")}
        assert Expected(**counts) == expected
        assert (summary["applied"], summary["moved"]) == (sum(counts.values()), 0)
        assert self.copied() == after
        self.held = after
        return summary | {"seconds": seconds}

    def copied(self) -> Objects:
        """Return the objects that a consumer without a cursor receives, without times."""
        found = replicate(f"{self.twin.url}feeds/{self.feed}/ops")
        for fields in found.values():
            del fields["timestamp"]
        return found

    def verify(self) -> dict[str, Any]:
        code, said = self.run("verify", *self.where, "--json")
        assert code == 0, said
        summary: dict[str, Any] = json.loads(said)
        return summary

    def _planned(self, dump: Path, engine: str, *options: str) -> dict[str, list[bytes]]:
        """The lines of the parts by their folders, in an order of their own; and the summary."""
        folder = dump.with_suffix(f".{engine}")
        words = ["--engine", engine, "--dry-run", "--plan", str(folder), *options]
        code, said = self.run("sync", str(dump), *self.where, *words)
        assert code == 0, said
        parts: dict[str, list[bytes]] = {"": [(folder / SUMMARY).read_bytes()]}
        for path in folder.glob("*/*.gz"):
            with gzip.open(path) as lines:
                parts.setdefault(path.parent.name, []).extend(lines)
        return {name: sorted(lines) for name, lines in parts.items()}

    def _dumped(self, text: str, date: str) -> Path:
        dump = self.folder / f"{len(self._dumps)}.json"
        dump.write_bytes(dumped(text, date, *self._dumps[-1:]))
        self._dumps.append(dump)
        return dump
