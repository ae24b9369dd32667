"""
The log of a feed: pages with ascending numbers.

This package assigns page numbers, decides which page is stored at a number and which answer a
repeated request gets, and limits how far a reader may read.
"""
