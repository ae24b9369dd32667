"""
Consumers whose position the feed keeps.

This package decides which entries are sent, leased, acknowledged, retried and parked, and what an
operator may change.
"""
