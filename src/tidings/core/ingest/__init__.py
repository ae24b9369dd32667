"""
How producers' writes reach the log: posts, the outbox, streams of other tables.

It decides what is accepted and what a request with a restricted key may change.
"""
