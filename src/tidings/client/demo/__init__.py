"""A demo feed: the history of a git repository, or generated operations."""
