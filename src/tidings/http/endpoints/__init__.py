"""Endpoints that respond at once: one module for each group of routes."""
