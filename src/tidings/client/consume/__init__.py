"""Following a feed: the loop, the position, and named consumers."""
