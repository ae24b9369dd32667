"""
The log on cheap storage.

It decides which pages form an object, how they are found again, and what compaction leaves.
"""
