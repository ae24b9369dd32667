"""
The object graph of a feed, shared by all hosts. It is built from stores and provides services.
"""
