"""changeagent's contract, row by row; a package, so that its twin ends with it."""
