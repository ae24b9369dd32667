"""`python -m tidings.client.cli` is the command `tidings`."""

from tidings.client.cli.main import main

main()
