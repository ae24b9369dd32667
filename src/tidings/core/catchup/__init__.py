"""Send a reader the events after its cursor, from the log, the state or the archive."""
