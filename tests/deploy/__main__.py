"""
`python -m tests.deploy`, once a version is released: from now on updates are tried from it.

It keeps what `make synth` wrote last, what a twin of this code stores, and what the conformance
suite asks for.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from infra import last_release
from infra.paths import ASSEMBLY
from tests.conformance.catalogue import cases
from tests.deploy import stored, suite


def main() -> None:
    try:
        last_release.keep(ASSEMBLY)
    except last_release.NoRelease as problem:
        sys.exit(str(problem))
    with tempfile.TemporaryDirectory() as folder:
        found = stored.record(Path(folder))
    version = last_release.version()
    stored.ITEMS.write_text(json.dumps({"version": version, **found}, indent=1) + "\n")
    suite.keep(version, cases())
    sys.stdout.write(f"kept {version}\n")


if __name__ == "__main__":
    main()
