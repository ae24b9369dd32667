"""
The basic value types: operations, pages, cursors, filters and events.

This package parses, validates and encodes them. Nothing in it performs I/O.
"""
