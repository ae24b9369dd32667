"""The command line `tidings`. Each subcommand is imported when it is run."""
