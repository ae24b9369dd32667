"""Tables of a feed for SQL, and the compaction of its archive, on Spark."""
