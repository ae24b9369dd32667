"""The twin's event source mappings: read streams of tables, and invoke functions with batches."""
