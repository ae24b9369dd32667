"""The object graph of a feed, written once for every host: its stores in, its services out."""
