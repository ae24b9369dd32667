"""Feeds that are created and deleted while a host runs: their records, service and removal."""
