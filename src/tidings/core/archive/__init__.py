"""The archive stores the pages of the log on cheap storage; it is read, written and compacted."""
