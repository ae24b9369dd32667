"""The package index of a Debian suite as a dump for `tidings sync`, an object a package:

    /usr/lib/apt/apt-helper cat-file /var/lib/apt/lists/*_Packages* |
        python debian_dump.py 2026-07-11T10:16:37Z > july.json
    tidings sync july.json --stage dev

An index contains its own time, not when each package changed. To update only changed packages,
name the previous dump: a package that is equal in both keeps its time.

    python debian_dump.py 2026-09-12T07:55:41Z july.json < Packages > september.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any


def stanzas(lines: Iterable[str]) -> Iterator[dict[str, str]]:
    """Yield the fields of each package; of a field of several lines, the first."""
    fields: dict[str, str] = {}
    for line in lines:
        if not line.strip():
            if fields:
                yield fields
            fields = {}
        elif not line[0].isspace():
            name, _, value = line.partition(":")
            fields[name] = value.strip()
    if fields:
        yield fields


def described(fields: dict[str, str]) -> dict[str, Any]:
    """Return the operation of a package. Its parents are the source and the section."""
    source = fields.get("Source", fields["Package"]).split()[0]
    return {
        "type": "package",
        "id": f"{fields['Package']}:{fields['Architecture']}",
        "parents": [f"source/{source}", f"section/{fields.get('Section', 'none')}"],
        "data": {"version": fields["Version"], "sha256": fields["SHA256"]},
    }


def known(path: str) -> dict[str, dict[str, Any]]:
    """Return the objects of an earlier dump by their ids."""
    with open(path, encoding="utf-8") as lines:
        return {each["id"]: each for each in map(json.loads, lines) if "id" in each}


def main(date: str, before: str = "") -> None:
    earlier = known(before) if before else {}
    count = 0
    for fields in stanzas(sys.stdin):
        package = described(fields)
        last = dict(earlier.get(package["id"], {}))
        since = last.pop("timestamp", date)
        print(json.dumps({**package, "timestamp": since if last == package else date}))
        count += 1
    print(json.dumps({"tidings": "end", "lines": count}))


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
