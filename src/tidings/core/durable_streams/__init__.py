"""Durable Streams 1.0: the streams of that protocol, stored in a feed."""
