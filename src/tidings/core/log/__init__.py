"""
The log of a feed: pages under ascending numbers.

It decides who gets a number, which page stands under it, what a repeated request is answered, and
how far a reader may go.
"""
