"""
What the owner of a feed has set.

It decides what may be set, how long a process remembers it, and what a restore or the end of a
key leaves there.
"""
