"""The archive of a feed as tables that SQL reads, and its compaction, on Spark."""
