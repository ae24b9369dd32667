"""
Catch-up: how a reader gets from its cursor to the end of the log.

This package decides which pages or rows are read from the log, the state or the archive, which of
their operations match, and which cursor belongs to them.
"""
