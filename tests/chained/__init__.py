"""Feeds that copy feeds, on twins with engines of their own."""
