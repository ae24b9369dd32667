"""Run the command line: `python -m tidings` is `tidings`."""

from tidings.client.signals import end_at_signals


def main() -> None:
    end_at_signals()  # before the imports of the command line, which take longer
    from tidings.client.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
