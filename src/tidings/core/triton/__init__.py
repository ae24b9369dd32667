"""
Change feeds for Triton's listeners and publishers.

The package decides the form of a registration and of an item, and which data about resources is
public.
"""
