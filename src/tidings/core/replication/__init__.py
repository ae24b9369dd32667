"""Feeds that copy another feed: what a copy receives, and which process reads the upstream."""
