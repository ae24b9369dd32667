"""
Consumers whose position the feed keeps.

It decides what is delivered, leased, acknowledged, retried and parked, and what an operator may
change of it.
"""
