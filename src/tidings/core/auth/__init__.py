"""Authenticate and authorize callers of a feed: passwords, keys, tokens and their quotas."""
