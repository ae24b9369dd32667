"""
Followers: the readers of the log that keep a checkpoint and a lease.

This package decides which process may work under a lease, which pages it handles, and the
checkpoint it stores.
"""
