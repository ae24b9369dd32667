"""
The process that Spark forks its Python workers from: made so that a task begins at once.

Spark puts PySpark as an archive before the installed one, and its own Java archive too. Each task
reads the contents of both again, for every folder in them: 0.9 s of CPU, more than the task itself.
Here the installed one is used. What tasks import is imported once, with the description of
DynamoDB: another second of each worker.
"""

from __future__ import annotations

import gc
import sys

MODULE = "tidings.sync.worker_daemon"  # for Spark's setting `spark.python.daemon.module`
_ARCHIVES = (".zip", ".jar")


def pass_over_archives() -> None:
    """Import from folders only."""
    sys.path[:] = [each for each in sys.path if not each.endswith(_ARCHIVES)]
    for each in [path for path in sys.path_importer_cache if any(end in path for end in _ARCHIVES)]:
        del sys.path_importer_cache[each]


def prepare() -> None:
    """Import what tasks are made of, and make a store: boto3 keeps what it reads for its client."""
    from tidings.sync import diff, dump, plan, target  # noqa: F401 forked workers have them

    nowhere = target.on_tables("main", "log", "state", "control", endpoint_url="http://127.0.0.1")
    nowhere.source().make()  # calls nobody


def main() -> None:
    pass_over_archives()  # before anything of PySpark is imported
    from pyspark import daemon

    prepare()
    gc.freeze()  # after each task a worker collects garbage; all this is none, 0.05 s to find out
    daemon.manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
