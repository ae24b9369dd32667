"""changeagent's contract, row by row; a package, so that its host ends with it."""
