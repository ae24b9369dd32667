"""Following a feed: the loop, the position, and consumers whose position the feed keeps."""
