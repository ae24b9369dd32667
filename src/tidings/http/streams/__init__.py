"""Long-running responses: event streams, lists of changes, and pages for chained feeds."""
