"""
Bringing a feed into agreement with a dump.

It decides which corrections a dump calls for, which of them still apply, and when a sync is too
large to apply.
"""
