"""`python -m tests.twin` is `tidings local`."""

from __future__ import annotations

from tests.twin.command import local

if __name__ == "__main__":
    local(prog_name="tidings local")
