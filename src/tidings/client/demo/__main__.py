"""Post demo operations with `python -m tidings.client.demo`."""

from __future__ import annotations

from tidings.client.demo.command import main

main()
