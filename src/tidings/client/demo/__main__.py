"""`python -m tidings.client.demo`: post something to watch."""

from __future__ import annotations

from tidings.client.demo.command import main

main()
