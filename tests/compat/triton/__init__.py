"""The contract of Triton's listeners, row by row; a package, so that its host ends with it."""
