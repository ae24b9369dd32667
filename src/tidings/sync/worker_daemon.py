"""The daemon that forks Spark's Python workers. It is prepared so that each task starts at once.

Spark puts an archive of PySpark and its own Java archive before the installed PySpark in the search
path of modules. At the start of each task, Spark invalidates Python's import caches. Python then
reads the list of an archive's files again, once for each folder of the archive that it has searched
for modules. This takes 0.9 s of CPU, more than the task itself. So the daemon uses the installed
PySpark. The daemon also imports once everything that tasks need, and loads boto3's description of
DynamoDB. Otherwise each worker would need another second for this.
"""

from __future__ import annotations

import gc
import sys

_ARCHIVES = (".zip", ".jar")


def pass_over_archives() -> None:
    """Remove archives from the search path of modules, so that only folders are searched."""
    sys.path[:] = [each for each in sys.path if not each.endswith(_ARCHIVES)]
    for each in [path for path in sys.path_importer_cache if any(end in path for end in _ARCHIVES)]:
        del sys.path_importer_cache[each]


def prepare() -> None:
    """Import the code of tasks, and make boto3 cache the description of DynamoDB."""
    from tidings.sync import dump, feed, job  # noqa: F401 imported for the forked workers

    nowhere = feed.on_tables("main", "log", "state", "control", endpoint_url="http://127.0.0.1")
    nowhere.source().make()  # creates a client, and sends no request


def main() -> None:
    pass_over_archives()  # must precede the first import of PySpark
    from pyspark import daemon

    prepare()
    # Otherwise the garbage collection after each task scans the imported objects, for 0.05 s.
    gc.freeze()
    daemon.manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
