"""
The archive: the log's pages on cheap storage.

The package decides which pages form an object, how an object is found again, and what compaction
keeps.
"""
