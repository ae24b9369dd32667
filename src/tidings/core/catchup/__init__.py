"""
How a reader gets from its cursor to the end of the log.

It decides what is read from the log, the state or the archive, what of it matches, and which
cursor goes with it.
"""
