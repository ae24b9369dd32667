"""The embedded host: `tidings serve` answers for feeds from one process, on one SQLite file."""
