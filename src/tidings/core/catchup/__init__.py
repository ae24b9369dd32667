"""Catch-up: the events of a reader from the log, the state and the archive, and its cursor."""
