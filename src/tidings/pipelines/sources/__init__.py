"""The sources that a pipeline can read from, in addition to a feed."""
