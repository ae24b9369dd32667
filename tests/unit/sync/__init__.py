"""The sync of a dump, on Spark; a package, so that its twin and its session end with it."""
