"""
The process that Spark forks its Python workers from: made so that a task begins at once.

Spark puts PySpark as an archive before the installed one, and each task reads the contents of that
archive again, for every folder in it: 0.8 s of CPU, more than the task itself. Here the installed
one is used. What tasks import is imported once, with the description of DynamoDB: another second
of each worker.
"""

from __future__ import annotations

import sys

MODULE = "tidings.pipeline.daemon"  # for Spark's setting `spark.python.daemon.module`


def pass_over_archives() -> None:
    """Import from folders only."""
    sys.path[:] = [each for each in sys.path if not each.endswith(".zip")]
    for each in [path for path in sys.path_importer_cache if ".zip" in path]:
        del sys.path_importer_cache[each]


def prepare() -> None:
    """Import what tasks are made of, and make a client: boto3 keeps what it reads for it."""
    from . import diff, dump, place, plan  # noqa: F401 forked workers have them

    tables = dict.fromkeys(("log", "state", "control"), "any")
    place.on_tables("main", **tables, endpoint_url="http://127.0.0.1").client()  # calls nobody


def main() -> None:
    pass_over_archives()  # before anything of PySpark is imported
    from pyspark import daemon

    prepare()
    daemon.manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
