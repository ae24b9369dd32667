"""
Listening to a change feed:

registration, items, the bootstrap, and what is buffered meanwhile.
"""
