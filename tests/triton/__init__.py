"""The contract of Triton's listeners, row by row; a package, so that its twin ends with it."""
