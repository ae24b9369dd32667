"""
Follow a feed and post to it: `follow.follow`, `post.Poster`, and the command line `tidings`.

Nothing is imported here, so that the command line starts without what it does not use.
"""
