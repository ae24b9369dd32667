"""
The object graph of a feed for every host, built from the stores that the host provides.
"""
