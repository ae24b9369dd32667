"""The log of a feed: who gets a page number, what is stored there, how far a reader may read."""
