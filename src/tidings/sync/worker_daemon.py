"""
The daemon that forks Spark's Python workers, prepared so that a task starts at once.

Spark puts an archive of PySpark and its own Java archive before the installed PySpark in the search
path. Each task would read the directory of both archives again for every folder in them. This takes
0.9 s of CPU, more than the task itself. The daemon therefore uses the installed PySpark. It also
imports everything that tasks need once, with DynamoDB's service description, which would take
another second in each worker.
"""

from __future__ import annotations

import gc
import sys

_ARCHIVES = (".zip", ".jar")


def pass_over_archives() -> None:
    """Import from folders only."""
    sys.path[:] = [each for each in sys.path if not each.endswith(_ARCHIVES)]
    for each in [path for path in sys.path_importer_cache if any(end in path for end in _ARCHIVES)]:
        del sys.path_importer_cache[each]


def prepare() -> None:
    """Import the code of tasks, and create a store, so that boto3 caches its description."""
    from tidings.sync import dump, feed, job  # noqa: F401 for the forked workers

    nowhere = feed.on_tables("main", "log", "state", "control", endpoint_url="http://127.0.0.1")
    nowhere.source().make()  # sends no request


def main() -> None:
    pass_over_archives()  # before anything of PySpark is imported
    from pyspark import daemon

    prepare()
    gc.freeze()  # else the garbage collection after each task scans these objects for 0.05 s
    daemon.manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
