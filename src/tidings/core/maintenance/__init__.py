"""Maintain a feed: sweep, retention and status; verify and rebuild the state; restore the log."""
