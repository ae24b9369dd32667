"""
Named consumers: the feed stores their positions.

The package decides which entries are sent, leased, acknowledged, retried and parked, and what an
operator may change.
"""
