"""Feeds that copy another feed: the pages of a copy, and the process that reads the upstream."""
