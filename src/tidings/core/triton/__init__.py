"""
Change feeds for Triton's listeners and publishers.

It decides what a registration and an item look like, and what is told about resources.
"""
