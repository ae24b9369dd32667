"""Bulk work on Spark: what a dump says is compared with the state, and a plan is written."""
