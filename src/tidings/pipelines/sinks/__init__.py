"""Stores that a pipeline can write to."""
