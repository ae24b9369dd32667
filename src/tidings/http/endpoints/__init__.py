"""Endpoints that respond at once, with one module for each group of routes."""
