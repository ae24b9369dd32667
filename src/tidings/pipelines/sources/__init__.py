"""Where a pipeline can read from beside a feed."""
