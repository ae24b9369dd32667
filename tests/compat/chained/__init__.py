"""Feeds that copy feeds, on hosts of their own."""
