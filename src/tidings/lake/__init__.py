"""The archive of a feed as tables for SQL, and its compaction, on Spark."""
