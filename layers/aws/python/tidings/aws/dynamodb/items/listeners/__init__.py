"""
The items of the connections table: who is connected, what for, and how far the sweep is with
them.
"""
