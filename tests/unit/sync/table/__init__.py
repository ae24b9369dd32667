"""Syncs with a table that goes on changing."""
