"""
Feeds that copy another feed.

It decides who may write to a copy, what is told to one, how it is bootstrapped, and which member
of a cluster reads the master.
"""
