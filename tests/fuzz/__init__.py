"""Input that nobody thought of: requests over HTTP, and bytes for everything that is parsed."""
