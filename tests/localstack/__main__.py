"""`python -m tests.localstack`: the stage in LocalStack until Ctrl-C, for code of yours.

With `--url` in one that runs already.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading

from tests.localstack import lane

_NAMED = ("AWS::DynamoDB::Table", "AWS::Lambda::Function")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.localstack", description=__doc__)
    parser.add_argument("--url", help="of a LocalStack that runs already, http://127.0.0.1:4566")
    told = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # leaves no process behind
    try:
        with lane.running(_say, told.url) as stage:
            for kind in _NAMED:
                _say(f"{kind}: {', '.join(stage.make(kind))}")
            _say("ready; Ctrl-C ends it")
            threading.Event().wait()
    except lane.EXPECTED_ERRORS as problem:
        sys.exit(str(problem))
    except KeyboardInterrupt:
        _say("stopped")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
