"""
The twin's event source mappings:

streams of tables are read, and their batches invoke functions.
"""
