"""Run the command `tidings serve` as `python -m tidings.server`."""

from __future__ import annotations

from tidings.server.command import serve

serve(prog_name="tidings serve")
