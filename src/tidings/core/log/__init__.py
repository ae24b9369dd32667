"""The log of a feed: assign page numbers, write pages, and read them up to the first hole."""
