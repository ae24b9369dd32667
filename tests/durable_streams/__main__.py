"""
The suite of Durable Streams against a server, in a minute, with its figures by category.

    python -m tests.durable_streams

It fails where a case fails that is not left out, or where PROTOCOL has other figures.
"""

from __future__ import annotations

import sys

from tidings.server.running import Server

from tests.durable_streams import suite

try:
    with Server() as server:
        found = suite.run(f"{server.url}feeds/main")
except suite.NoSuite as error:
    sys.exit(str(error))
figures = suite.table(found)
sys.stdout.write(f"{figures}\n")
failed = suite.unexplained(found)
if failed:
    sys.exit("\n".join(f"failed: {each.category}: {each.title}" for each in failed))
if figures not in suite.PROTOCOL.read_text():
    sys.exit(f"{suite.PROTOCOL} has other figures")
