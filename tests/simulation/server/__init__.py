"""The world of one server: the real host on SQLite, on a simulated machine."""
