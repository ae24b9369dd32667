"""Append to the log: requests of producers, messages of the outbox, and writes to other tables."""
