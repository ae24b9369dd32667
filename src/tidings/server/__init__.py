"""The server: `tidings serve` serves feeds from one process, on one SQLite file."""
