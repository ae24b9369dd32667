"""Erase the data of an object from the log, the archive and every other store of a feed."""
