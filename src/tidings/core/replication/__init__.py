"""
Feeds that copy another feed.

The package decides which feeds accept producers, what an upstream sends to a copy, how a copy
starts with the upstream's state, and which member of a cluster reads the master.
"""
