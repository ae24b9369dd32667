"""Run the command `tidings` as `python -m tidings.client.cli`."""

from tidings.client.cli.main import main

main()
