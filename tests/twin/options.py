"""The options of the command line, and the functions and tables that they name.

The twin runs the functions of an installed wheel or of a checkout. The tables belong to other
applications, and writes to the tables become operations, as in `infra`. These tables are in the
twin's DynamoDB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tidings.aws.config import deployment
from tidings.core.errors import Rejected
from tidings.core.ingest.table_capture import parse
from tidings.server.feed_options import HostOptions
from tidings.server.processes import PACKED, Problem, find_packed

STAGE = "local"
PREFIX = f"tidings-{STAGE}-"
REGION = "us-east-1"
ACCOUNT = "000000000000"
_HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Options(HostOptions):
    """The options of `tidings local`.

    *endpoint_url* is the address of a DynamoDB to use instead of DynamoDB Local. *data* is the
    folder in which the tables are stored on disk. *functions* is a folder of handlers to use
    instead of the repository's or the package's. *archive* is the folder of the archive, by default
    *data*; if both are None, nothing is archived. *captures* declare tables that produce
    operations.
    """

    endpoint_url: str | None = None
    dynamodb_port: int = 0
    data: Path | None = None
    archive: Path | None = None
    functions: Path | None = None
    captures: tuple[str, ...] = ()
    verbose: bool = False


class NoFunctions(Problem):
    def __init__(self, where: str) -> None:
        super().__init__(
            f"the functions were not found at or above {where}; run the twin from a checkout of the"
            " repository, or name the folder of the functions with --functions"
        )


@dataclass(frozen=True, slots=True)
class InstalledFunctions:
    """The folder *functions* of the handlers, and the folders that workers import modules from.

    Without *layers*, the workers import the installed packages.
    """

    functions: Path
    layers: tuple[Path, ...] = ()


def find_functions(here: Path = _HERE) -> InstalledFunctions:
    """Return the functions that belong to the package in the folder *here*.

    Raises:
        NoFunctions: the package was installed without functions.
    """
    functions = find_packed(here, "functions")
    if functions is None:
        raise NoFunctions(str(here))
    is_packed = functions.parent == here / PACKED
    return InstalledFunctions(functions, () if is_packed else (functions.parent / "src",))


@dataclass(frozen=True, slots=True)
class TableProducer:
    """A table in the twin's DynamoDB. The writes to the table become operations.

    *table* is the table's name. The table's stream invokes *function*, which appends to *feed*.
    """

    table: str
    feed: str
    function: deployment.Function

    @property
    def source(self) -> deployment.StreamSource:
        return replace(deployment.CAPTURE_SOURCE, table=self.table, function=self.function.name)


def table_producers(options: Options) -> Sequence[TableProducer]:
    """Return the table producers configured by *options*.

    Raises:
        Problem: a value of --capture is invalid.
    """
    return [_producer(text) for text in options.captures]


def _producer(text: str) -> TableProducer:
    table, separator, capture = text.partition("=")
    if not separator or not table:
        raise Problem(f"--capture {text}: must be TABLE=JSON")
    try:
        feed = parse(capture).feed
    except Rejected as error:
        raise Problem(f"--capture {table}: {error}") from None
    name = f"{deployment.CAPTURE.name}-{table}"
    variables = {"TIDINGS_CAPTURE": capture}
    return TableProducer(table, feed, replace(deployment.CAPTURE, name=name, environment=variables))
