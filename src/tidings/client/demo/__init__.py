"""A feed to look at: the history of a git repository, or what is made up."""
