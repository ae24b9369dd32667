"""The object graph of a feed, shared by all hosts: built from stores, provides services."""
