"""What Spark is asked for: DataFrames, and no more of them on the driver than it can hold."""

from __future__ import annotations

import ast

from tests.style import source

# Besides DataFrames, Spark Connect lacks these; and rows that come to the driver.
BESIDE = frozenset({"rdd", "sparkContext", "SparkContext", "_sc", "_jvm", "_jsc", "_jdf"})
TO_DRIVER = frozenset({"collect", "toArrow", "toLocalIterator", "toPandas"})
_LAKE, _SYNC = "src/tidings/lake", "src/tidings/sync"
REASONS = {
    # A table function of Python's hands over a whole bucket at once (4,000,000 rows: Java at
    # 1.9 GB, not 0.6); what streams instead would have the job carry pyarrow.
    f"{_SYNC}/engine.py:rows:sparkContext": "an RDD reads a bucket page by page; Spark alone",
    f"{_SYNC}/engine.py:cores:sparkContext": "no DataFrame has their number; likewise",
    f"{_SYNC}/sail.py:observe:collect": "one row",
    f"{_SYNC}/engine.py:progress:sparkContext": "nor how many tasks are done; likewise",
    f"{_SYNC}/job.py:_by_type:collect": "a count for each type and event: the summary names them",
    f"{_SYNC}/dump.py:first_bad:collect": "ten lines at most",
    f"{_SYNC}/dump.py:notes_of:collect": "ten notes at most, with numbers of lines",
    f"{_SYNC}/state.py:table:collect": "the files of an export, which are read by name",
    f"{_LAKE}/compaction.py:_run:collect": "a count for each part; they are listed here anyway",
    f"{_LAKE}/feed_tables.py:_came:collect": "types, of those that were declared",
    f"{_LAKE}/tables.py:through:collect": "one row",
    f"{_LAKE}/follow.py:_took:collect": "one row",
    f"{_LAKE}/erasure.py:pending:collect": "the erasure entries of a batch",
    f"{_LAKE}/erasure.py:_files:collect": "names of files, which an update lists",
    f"{_LAKE}/files.py:remove_empty_files:collect": "names of such files; then one row",
    f"{_LAKE}/files.py:_jvm:_jvm": "no SQL of Iceberg removes a file or rewrites one manifest",
    f"{_LAKE}/command.py:query:collect": "a thousand rows at most, to be shown",
    f"{_LAKE}/command.py:query:toLocalIterator": "printed, a partition at a time",
    f"{_LAKE}/feed_tables.py:rows:collect": "the most frequent keys, as many as columns",
    "src/tidings/pipelines/files.py:read:toLocalIterator": "passed on, likewise",
}


def named(module: source.Module) -> set[str]:
    """Module, function and name of each use in *module*."""
    return {
        f"{module.name}:{function.name}:{node.attr}"
        for function in module.functions()
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and node.attr in BESIDE | TO_DRIVER
        if ast.unparse(node) != "gc.collect"
    }


def test_spark_is_asked_for_dataframes_alone() -> None:
    """What else there is, which Spark Connect may not run, is here with its reason."""
    folders = [each for each in source.PRODUCT if not each.startswith(("bench", "tests"))]

    found = set().union(*map(named, source.modules(*folders)))

    assert found == set(REASONS)
