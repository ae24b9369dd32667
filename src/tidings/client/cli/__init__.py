"""The command line `tidings`: each subcommand is imported when it is asked for."""
