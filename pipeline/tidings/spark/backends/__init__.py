"""The backends of a read: over HTTP, by the tables of a deployment, by its archive."""
