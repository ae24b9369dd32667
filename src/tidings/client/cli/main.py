"""The command line `tidings`.

A subcommand is imported when it is run, so that `tidings --help` starts fast.
"""

from __future__ import annotations

import errno
import importlib
import io
import os
import re
import select
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem, get_completion_class

from tidings.client.errors import ClientError
from tidings.client.signals import end_at_once, end_at_signals, interrupt_at_signals
from tidings.core.version import how_to_install
from tidings.server.output import unblock

# httpx would import a command line of its own, with rich: a quarter of the start of a command.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]

EXIT_CODES = "Exit codes: 0 done, 1 failure, 2 wrong usage."
FOUND = 3  # the exit code of a command that checks something, if it found a problem
CHECK_CODES = f"Exit codes: 0 no problem, 1 could not check, 2 wrong usage, {FOUND} a problem."
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # of a disk, or a lost terminal
INTERRUPTED = 130  # the exit code that shells use for SIGINT
# The exit codes of these commands are results, so it is not 0 if their output has lost its reader.
_WITH_RESULT = frozenset(("doctor", "pipeline", "rebuild", "restore", "sync", "tables", "verify"))
_USER = re.compile(r"//[^\s/@]+@")  # the user and password in an address
_NO_HOME = "/nonexistent"  # the home folder of users without one, as in Debian

PACKAGES = {  # for each extra, the packages that its commands need
    "": (),
    "agent": ("httptools", "uvicorn"),
    "aws": ("boto3",),
    "flow": ("psycopg", "pyarrow"),
    "sail": ("boto3", "pyspark"),  # or the extra `pipeline`, which needs Java
    "spark": ("boto3", "pyarrow", "pyspark"),
    "serve": ("bcrypt", "httptools", "urllib3", "uvicorn", "uvloop", "yaml"),
}


class Subcommand(NamedTuple):  # `tidings --help` with a dataclass would take milliseconds longer
    """The *module* that defines a command; the command needs the packages of *extra*."""

    module: str
    help: str
    extra: str = ""
    group: str = "Commands"


def _table(text: str) -> dict[str, Subcommand]:
    """Return the commands in *text*: name, module, extra or `-`, and help, in `# GROUP`s."""
    found, group = {}, "Commands"
    for line in text.strip().splitlines():
        name, rest = line.split(maxsplit=1)
        if name == "#":
            group = rest
            continue
        module, extra, meaning = rest.split(maxsplit=2)
        found[name] = Subcommand(f"tidings.{module}", meaning, extra.replace("-", ""), group)
    return found


SUBCOMMANDS = _table("""
# Every day
post       client.cli.post       -     Post operations to a feed.
tail       client.cli.tail       -     Show the events of a feed as they arrive.
get        client.cli.get        -     Show an object as it is now, or its history.
status     client.cli.status     -     Show the status of a feed.
log        client.cli.tail       -     Show the log of a feed.
clients    client.cli.clients    -     Show the connected clients of a feed.
consume    client.cli.consumers  -     Run a worker of a named consumer of a feed.
context    client.cli.contexts   -     Name feeds, so that commands need no address.
completion client.cli.main       -     Print the completion script of a shell.
# Operate a feed
serve      server.command        serve Serve feeds from this process, stored in one file.
backup     server.command        serve Copy the feeds of a server to a file.
feeds      client.cli.feeds      -     Create, list and delete the feeds of a host.
feed       admin.feed_command    -     Show and change the settings and passwords of a feed.
keys       admin.keys_command    -     Create, list and revoke the keys of a feed.
users      admin.users_command   -     Import and list the users that may read the changes of a feed.
consumers  client.cli.consumers  -     Show and steer named consumers.
hooks      client.cli.consumers  -     Send events to webhooks.
relays     client.cli.relays     -     Show and steer feeds that copy another feed.
agent      agent.command         agent Store a producer's operations on disk and post them.
archive    client.cli.main       -     Show and compact an archive.
erase      client.cli.erasures   -     Erase the data of an object from a feed.
erasures   client.cli.erasures   -     Show erasures, and where data may still be.
# Data
sync       sync.command          sail  Correct a feed by a dump of its source.
pipeline   pipelines.command     flow  Copy a feed into stores and keep them up to date.
tables     client.cli.main       -     Store a feed as Iceberg tables, and query them.
# AWS
stages     admin.stages_command  aws   List the addresses and credentials of an account's stages, and overdue rotations.
doctor     admin.doctor_command  aws   Check whether the deploy of a stage would succeed in an account.
verify     admin.verify_command  aws   Compare the state of a feed with its log.
rebuild    admin.verify_command  aws   Rebuild the state of a feed from its log.
restore    admin.restore_command aws   Resume a feed after its tables were restored to an earlier time.
# Compatibility
snoop      client.cli.tail       -     Print the items of a feed as a Triton listener.
""")  # noqa: E501 (a table)


class LazyGroup(click.Group):
    """A group with its subcommands in *table*. Only the subcommand that runs is imported."""

    def __init__(
        self,
        *,
        table: Mapping[str, Subcommand] = SUBCOMMANDS,
        called: str = "tidings",
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.table, self.called = table, called

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.table.get(cmd_name)
        if entry is None:
            return None
        command = getattr(importlib.import_module(entry.module), cmd_name)
        assert isinstance(command, click.Command)
        missing = [name for name in PACKAGES[entry.extra] if find_spec(name) is None]
        called = f"{self.called} {cmd_name}"
        return Unavailable(called, command, entry.extra, missing) if missing else command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the matching commands without importing them."""
        found = (each for each in self.table.items() if each[0].startswith(incomplete))
        items = [CompletionItem(name, help=entry.help) for name, entry in found]
        return items or click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest similar names for an unknown command."""
        name = args[0]
        if name not in self.table and not name.startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches

            close = " or ".join(map(repr, get_close_matches(name, self.table)))
            ctx.fail(f"No such command {name!r}." + (f" Did you mean {close}?" if close else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.table))  # the help texts of all groups are aligned
        for group, entries in groupby(self.table.items(), lambda each: each[1].group):
            with formatter.section(group):
                formatter.write_dl([(name.ljust(width), entry.help) for name, entry in entries])


class Unavailable(click.Command):
    """A *command* whose packages are *missing*: it shows help, and reports them when it runs."""

    def __init__(
        self, name: str, command: click.Command, extra: str, missing: Sequence[str]
    ) -> None:
        super().__init__(name)
        self._command, self._extra, self._missing = command, extra, missing

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        if {"-h", "--help"} & {*args} or (parent is not None and parent.resilient_parsing):
            return self._command.make_context(info_name, args, parent, **extra)
        raise click.ClickException(
            f"`{self.name}` needs {', '.join(self._missing)}, not installed here;"
            f" {how_to_install(self._extra)}"
        )


class Program(LazyGroup):
    """The command `tidings`. Ctrl-C ends it with `INTERRUPTED`, and without a traceback."""

    def main(self, *args: Any, **settings: Any) -> Any:
        """Run the command, with any encoding of the output, and also for a user without a home."""
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
            if sys.stdout.encoding.lower() in ("ascii", "us-ascii"):
                sys.stdout = _Ascii(sys.stdout.buffer, "ascii", "backslashreplace")
        try:
            Path.home()
        except RuntimeError:  # a user of a container may have no entry in /etc/passwd
            environment = os.environ  # noqa: TID251 (of the user, not of a function)
            environment["HOME"] = _NO_HOME
        return super().main(*args, **settings)

    def invoke(self, ctx: click.Context) -> Any:
        is_process = signal.getsignal(signal.SIGTERM) == end_at_once
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo(err=True)  # ends the line with the terminal's ^C
            ctx.exit(INTERRUPTED)
        except ClientError as error:  # of a command that does not report it itself
            raise click.ClickException(str(error)) from None
        except click.ClickException as error:  # a library may name a proxy with its password
            vars(error)["message"] = _USER.sub("//", error.message)
            raise
        except OSError as error:
            ctx.exit(_end(error, ctx.invoked_subcommand))
        except click.Abort as aborted:  # a prompt was interrupted, or its input has ended
            if not isinstance(aborted.__context__, KeyboardInterrupt):
                raise
            click.echo(err=True)
            ctx.exit(INTERRUPTED)
        finally:
            if is_process:
                end_at_signals()  # the end of the interpreter would print a traceback


def _end(error: OSError, command: str | None) -> int:
    """Return the exit code of a *command* with a closed pipe as its output."""
    if str(error.filename).startswith(_NO_HOME):
        rule = "this user has no home folder; set HOME to a folder for the files of tidings"
        raise click.ClickException(rule) from None
    is_unread = error.errno == errno.EPIPE and _is_unread_pipe()
    if not is_unread and (error.errno not in _FULL or error.filename is not None):
        raise error
    discard_output()
    if is_unread:
        return int(command in _WITH_RESULT)
    raise click.ClickException(f"the output cannot be written: {error.strerror}") from None


class _Ascii(io.TextIOWrapper):
    """A stdout that escapes other characters; to one that is named ASCII, click writes UTF-8."""

    encoding = "ascii-escaped"


def _is_unread_pipe() -> bool:
    """Return True if stdout is a pipe that its reader, such as `head`, has closed."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(state & (select.POLLERR | select.POLLHUP) for _, state in poll.poll(0))


def discard_output() -> None:
    """Drop what stdout still holds; otherwise Python's own flush at the end exits with 120."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(
    cls=Program,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=f"\b\n{EXIT_CODES}\nCtrl-C ends a command with {INTERRUPTED}, or with 0 if it runs until"
    " Ctrl-C.\nMore about one command: tidings COMMAND --help",
)
@click.version_option(package_name="tidings", message="tidings %(version)s")
def main() -> None:
    """Tidings: a change feed. Post changes; every consumer receives them in order.

    \b
    Examples:
      tidings serve                        serve a feed from this process
      tidings tail --from 0                all objects, then the changes
      tidings post insert video x32        say that the video x32 is new
    """
    interrupt_at_signals()
    unblock("stderr", waits=True)
    # boto3 only reads AWS_DEFAULT_REGION; the AWS CLI, the CDK and AWS's other libraries also read
    # AWS_REGION.
    environment = os.environ  # noqa: TID251 (the environment of the operator, not of a function)
    if region := environment.get("AWS_REGION"):
        environment["AWS_DEFAULT_REGION"] = region
    if environment.get("NO_COLOR"):
        click.get_current_context().color = False
    before = os.umask(0o077)  # so that files with data of a feed are private
    click.get_current_context().call_on_close(lambda: os.umask(before))


@click.group(
    cls=LazyGroup,
    epilog=EXIT_CODES,
    called="tidings archive",
    table=_table("""
status     admin.archive_command aws   Show the parts of an archive and the progress of its follower.
show       admin.archive_command aws   Print the operations of some pages.
compact    lake.command          spark Compact parts that all consumers have read.
"""),  # noqa: E501 (a table)
)
def archive() -> None:
    """Show and compact the archive of a feed.

    \b
    Examples:
      tidings archive status --stage prod
      tidings archive show 12..14 --archive ./feed
      tidings archive compact --stage prod --table lake
    """


@click.group(
    cls=LazyGroup,
    epilog=EXIT_CODES,
    called="tidings tables",
    table=_table("""
follow     lake.command          spark Update the tables of a feed regularly.
status     lake.command          spark Show the lag of the tables.
query      lake.command          spark Query the tables in SQL.
"""),
)
def tables() -> None:
    """Store a feed as Iceberg tables.

    There is a table of every operation, a table of the latest operation of each object, and
    optionally a table for each type.

    \b
    Examples:
      tidings tables follow --table lake --once
      tidings tables follow --table lake --stage prod --columns columns.json
      tidings tables status --table lake
      tidings tables query "SELECT count(*) FROM history" --table lake
    """


@click.command(epilog=EXIT_CODES)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    Examples:
      tidings completion bash >> ~/.bashrc
      tidings completion zsh > "${fpath[1]}/_tidings"
      tidings completion fish > ~/.config/fish/completions/tidings.fish
    """
    shell_class = get_completion_class(shell)
    assert shell_class is not None
    click.echo(shell_class(main, {}, "tidings", "_TIDINGS_COMPLETE").source())


if __name__ == "__main__":
    end_at_signals()
    main()
