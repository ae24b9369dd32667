"""
Sync: making a feed agree with a dump.

The package decides which corrections a dump requires, which of them still apply, and when a sync is
too large to apply.
"""
