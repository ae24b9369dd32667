"""
Durable Streams 1.0: the streams of that protocol, stored in a feed.

This package decides whether a producer may append, how a body is stored in the log, and which part
of a stream a reader is sent.
"""
