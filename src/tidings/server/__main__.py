"""`python -m tidings.server`: the command `tidings serve`."""

from __future__ import annotations

from tidings.server.command import serve

serve(prog_name="tidings serve")
