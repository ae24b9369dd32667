"""Catch-up: what a reader is sent from the log, the state and the archive, and its cursor."""
