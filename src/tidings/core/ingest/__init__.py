"""Writes of producers on their way to the log: posts, the outbox, streams of other tables."""
