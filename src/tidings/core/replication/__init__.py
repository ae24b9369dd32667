"""Chained feeds, which copy the pages of another feed, and the relays that read the upstream."""
