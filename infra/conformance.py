"""The conformance suite against a stage that runs, and what the suite needs of it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from tidings.aws.config.stages import Addresses

from infra.paths import ROOT

SUITE = ROOT / "tests" / "conformance"
# What the cases of listeners listen for, and those of leaves need: for `tidings feed set`.
DECLARED = (
    *("--resource", "vm:nic,alias=/vms", "--resource", "own:a,b"),
    *("--max-age", "28800", "--leave", "on"),
)
_LAW = f"{SUITE.relative_to(ROOT)}/test_conformance.py::test_law"


def command(
    addresses: Addresses, left_out: Iterable[str] = (), options: Sequence[str] = ()
) -> list[str]:
    """
    What runs it from the root of the repository against *addresses*, without the cases *left_out*;
    *options* are more of pytest's. The feed takes requests without a password.
    """
    return [
        *(sys.executable, "-m", "pytest", "-q", str(SUITE)),
        f"--base-url={addresses.feed}",
        f"--stream-url={addresses.stream}",
        f"--ws-url={addresses.sockets}",
        *(f"--deselect={_LAW}[server-{case}]" for case in left_out),
        *options,
    ]
