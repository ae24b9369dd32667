"""The embedded host: `tidings serve` serves feeds from one process, on one SQLite file."""
