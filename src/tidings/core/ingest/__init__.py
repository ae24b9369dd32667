"""
Writes of producers on their way to the log: posts, the outbox, streams of other tables.

The package decides which operations are accepted, and which objects a request with a restricted key
may change.
"""
