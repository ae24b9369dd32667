"""Append the writes of producers to the log: posts, the outbox and streams of other tables."""
