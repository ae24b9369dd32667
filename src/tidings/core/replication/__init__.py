"""Chained feeds, which copy the pages of another feed, and the relays, which do the copying."""
