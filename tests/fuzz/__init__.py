"""Unforeseen input: requests over HTTP, and bytes for every parser."""
