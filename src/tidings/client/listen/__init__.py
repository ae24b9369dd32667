"""Listening to a change feed: registration, items, the bootstrap, and the buffer."""
