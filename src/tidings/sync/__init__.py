"""Bulk corrections of a feed, by a dump that Spark compares with the state, or by a table."""
