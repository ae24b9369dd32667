"""`python -m tidings.local` is `tidings local`."""

from __future__ import annotations

from tidings.local.command import local

if __name__ == "__main__":
    local(prog_name="tidings local")
