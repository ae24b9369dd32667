"""A feed in one process, on SQLite. So far it holds the stores; no command serves them yet."""
