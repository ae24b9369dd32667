"""A server killed a hundred times under load, which takes a few minutes.

python -m tests.e2e
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.e2e.test_kill import Load, play

HUNDRED = Load(100, producers=16, consumers=8, acked=850)

with tempfile.TemporaryDirectory() as folder:
    acknowledged = play("server", HUNDRED, Path(folder))
sys.stdout.write(f"{HUNDRED.kills} kills, {acknowledged:,} operations acknowledged, none lost\n")
