"""Posting to a feed: in batches, or through the outbox of a table."""
