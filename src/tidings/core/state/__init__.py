"""
The latest operation of each object.

It decides which row an operation leaves, which parents it removed from its object, and how long a
deletion is remembered.
"""
