"""Sync: which corrections make a feed agree with a dump, and when a sync is too large."""
