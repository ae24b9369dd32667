"""
Durable Streams 1.0: what a stream of that protocol is, as a part of a feed.

It decides whether a producer may append, what its body becomes in the log, and which part of a
stream a reader is told.
"""
