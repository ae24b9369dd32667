"""The archive: the log's pages on cheap storage, how they are found again and compacted."""
