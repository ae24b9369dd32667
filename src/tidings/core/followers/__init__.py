"""
The functions that handle every page of a log once and in order.

It decides who holds the lease, where a follower goes on, and when another run takes over.
"""
