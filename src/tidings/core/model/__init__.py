"""The value types: operations, pages, cursors, filters and events. Nothing here performs I/O."""
