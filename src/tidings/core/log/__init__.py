"""The log of a feed: the assignment of page numbers, stored pages, and the end for readers."""
