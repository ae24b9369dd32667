"""Run the command line: `python -m tidings` is `tidings`."""

from tidings.client.cli.main import main

if __name__ == "__main__":
    main()
