"""Followers: the readers of the log that keep a checkpoint and a lease."""
