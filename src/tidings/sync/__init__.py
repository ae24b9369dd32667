"""Bulk corrections on Spark: compare a dump with the state, and write a plan."""
