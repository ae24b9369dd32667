"""Durable Streams 1.0 on the wire: `/feeds/{feed}/v1/stream/{name}` (PROTOCOL 21)."""
