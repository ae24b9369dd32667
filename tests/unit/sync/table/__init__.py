"""Syncs with a table that changes during the sync."""
