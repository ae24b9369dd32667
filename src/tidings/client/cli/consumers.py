"""`tidings consumers`, `consume` and `hooks`: the named consumers of a feed, and its webhooks."""

from __future__ import annotations

import functools
import inspect
import secrets
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import click

from tidings.client.cli.main import EXIT_CODES, discard_output
from tidings.client.cli.options import (
    Access,
    access_options,
    erasures_option,
    filter_options,
    json_option,
    user_name,
)
from tidings.client.cli.render import (
    NONE,
    answer,
    cell,
    compact,
    describe_entry,
    failures,
    machine,
    printable,
    retrying,
    show_list,
)
from tidings.client.errors import ClientError, Refused, Unwritten
from tidings.client.events import Event
from tidings.client.retries import PRINT_S, stop_on_signals
from tidings.core.model.filters import FIELDS

if TYPE_CHECKING:
    from tidings.client.worker import Message, Worker

DEFAULT_BULK = 500
_COLUMNS = ("name", "state", "position", "lag_pages", "lag_ms", "parked", "worker")
_FIELDS = (
    *_COLUMNS,
    *("copying", "acked", "single_through", *FIELDS, "erasures", "retries", "failure", "written"),
)
_HOOKS = ("name", "state", "url", "lag_ms", "parked", "failure")
_ATTEMPTS = ("at", "id", "number", "status", "ms", "result")
_FILTERS = (*FIELDS, "erasures")
_HOOK_FIELDS = ("format", "attempts")
_UNKNOWN = ("unknown_consumer", "unknown_webhook")
_EXISTING = ("consumer_exists", "webhook_exists")
_NAME_CHARS = 50  # maximum length of the host in a webhook's name, which has up to 63 characters


update_option = click.option(
    "--update", is_flag=True, help="If the name exists, change the given fields, keep the others."
)


@click.group(epilog=EXIT_CODES)
def consumers() -> None:
    """Show and steer the named consumers of a feed, while they run.

    A command that changes a consumer takes a reason, which is stored with the operator's name.

    \b
    Examples:
      tidings consumers create search --types video
      tidings consumers list
      tidings consumers park search --why "data too long"    the next message
      tidings consumers retry search all --why "repaired"    all parked messages
      tidings consumers mark search ID --why "sent by hand"  continue after ID
    """


def why_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add --why and --by to a command, which receives them as *reason*."""

    @functools.wraps(command)
    def with_reason(why: str, by: str, **others: Any) -> None:
        command(reason={"why": why, "by": by}, **others)

    because = click.option(
        "--why", required=True, metavar="TEXT", help="Reason, stored with the change."
    )
    who = click.option(
        "--by", default=_me, metavar="NAME", help="Name of the operator.  [default: USER@HOST]"
    )
    return because(who(with_reason))


def _me() -> str:
    return f"{user_name()}@{socket.gethostname()}"


@consumers.command("list", epilog=EXIT_CODES)
@json_option
@access_options
def list_(as_json: bool, feed: Access) -> None:
    """Show all consumers, each with its lag and its worker.

    \b
    Examples:
      tidings consumers list
      tidings consumers list --json | jq '.[] | select(.lag_ms > 60000)'
    """
    answers = feed.ask("GET", "consumers")["consumers"]
    show_list(answers, _COLUMNS, as_json=as_json, empty="no named consumers")


@consumers.command("show", epilog=EXIT_CODES)
@click.argument("name")
@json_option
@access_options
def show_(name: str, as_json: bool, feed: Access) -> None:
    """Show one consumer, its failed message, and its parked messages.

    \b
    Example:
      tidings consumers show search
    """
    with feed.asking() as api:
        consumer = api.show(name) | {"messages": api.parked(name), "notes": api.notes(name)}
    if as_json:
        click.echo(compact(consumer))
        return
    for field in _FIELDS:
        value = consumer.get(field)
        if value is not None and value is not False and value not in ("", []):  # zeros are shown
            click.echo(f"{field:<15} {cell(value)}")
    for each in consumer["messages"]:
        click.echo(f"{'parked':<15} {each['id']} after {each['attempts']}: {cell(each['error'])}")
    for each in consumer["notes"]:
        about = f"{each['what']} {each['id']}" if "id" in each else each["what"]
        click.echo(f"{'note':<15} {about} by {cell(each['who'])}: {cell(each['why'])}")


@consumers.command(epilog=EXIT_CODES)
@click.argument("name")
@click.option(
    "--from",
    "start",
    metavar="PLACE",
    default="oldest",
    show_default=True,
    help="Start: oldest, now, copy (every object first) or the id of a message.",
)
@filter_options
@erasures_option
@update_option
@json_option
@access_options
def create(
    name: str,
    start: str,
    wanted: dict[str, list[str]],
    erasures: bool,
    update: bool,
    as_json: bool,
    feed: Access,
) -> None:
    """Register a consumer.

    From now on, the feed keeps the part of the log that the consumer has not read. If the consumer
    exists, the command changes nothing and ends with 1. With --update, an existing consumer gets
    the given filters, and keeps its position and its other filters; an empty list removes a filter.

    \b
    Examples:
      tidings consumers create search --types video
      tidings consumers create search --types video,film --update
      tidings consumers create audit --from copy
    """
    given = {**wanted, **_if_set(erasures)}
    with feed.asking() as api:
        old = _existing(lambda: api.show(name)) if update else None
        kept = {} if old is None else {field: old.get(field) for field in _FILTERS}
        body = {"from": start, **_without_empty(kept | given)}
        with _exists(name):
            consumer = api.register(name, body, only_new=not update)
    answer(consumer, _position(name, consumer), as_json=as_json)


def _existing(show: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    """Return the answer of *show*, or None if the consumer or webhook does not exist."""
    try:
        return show()
    except Refused as error:
        if error.code not in _UNKNOWN:
            raise
        return None


@contextmanager
def _exists(name: str) -> Iterator[None]:
    """Add the remedy to the error for an existing name."""
    try:
        yield
    except Refused as error:
        if error.code not in _EXISTING:
            raise
        rule = "exists already; use --update to change it"
        raise click.ClickException(f"{printable(name)} {rule}") from None


def _without_empty(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in (None, [], "", False)}


@consumers.command(epilog=EXIT_CODES)
@click.argument("name")
@why_options
@json_option
@access_options
def delete(name: str, reason: dict[str, str], as_json: bool, feed: Access) -> None:
    """Delete a consumer and its parked messages, and stop keeping the log for this consumer.

    \b
    Example:
      tidings consumers delete search --why "replaced by search-2"
    """
    with feed.asking() as api:
        deleted = api.delete(name, reason)
    answer(deleted, f"{name} is deleted", as_json=as_json)


def _if_set(erasures: bool) -> dict[str, bool]:
    """Return the field `erasures` if it is True; older servers do not know the field."""
    return {"erasures": True} if erasures else {}


def _position(name: str, consumer: dict[str, Any]) -> str:
    return f"{name} is at {consumer['position'] or NONE}"


def _state(name: str, consumer: dict[str, Any]) -> str:
    return f"{name} is {consumer['state']}"


def _add(
    action: str,
    text: str,
    done: Callable[[str, dict[str, Any]], str],
    field: str = "",
    metavar: str = "",
    example: str = "",
) -> None:
    """Add a command for *action*, an action of PROTOCOL 14; *text* is the help of the command.

    *example* are the words of an example after the consumer's name.

    *done* returns the line to print, given the consumer's name and the answer of the feed. *field*
    is a field of the request's body; the command has an argument for its value.
    """
    words = " ".join(filter(None, (action, "search", example)))
    shown = f"{inspect.cleandoc(text)}\n\n\b\nExample:\n  tidings consumers {words}"

    @consumers.command(action, help=shown, epilog=EXIT_CODES)
    @click.argument("name")
    @why_options
    @json_option
    @access_options
    def command(
        name: str, reason: dict[str, str], as_json: bool, feed: Access, **body: str
    ) -> None:
        with feed.asking() as api:
            document = api.act(name, action, reason | body)
        answer(document, done(name, document), as_json=as_json)

    if field:
        click.argument(field, metavar=metavar)(command)


_add(
    "mark",
    """
    Move a consumer to POSITION: oldest, now, copy or the id of a message.

    If POSITION is ahead, everything up to POSITION is acknowledged without being sent. If
    POSITION is back, everything after POSITION is sent again.
    """,
    _position,
    "position",
    "POSITION",
    example='now --why "the backlog is not needed"',
)
_add(
    "step",
    "Acknowledge the next message without sending it.",
    lambda name, document: describe_entry(document["stepped"]),
    example='--why "sent by hand"',
)
_add(
    "park",
    "Park the next message with its last error, and continue with the others.",
    lambda name, document: describe_entry(document["parked"]),
    example='--why "data too long"',
)
_add(
    "retry",
    "Send a parked message (or all) again, alone and out of turn.",
    lambda name, document: f"{len(document['retries'])} to be sent again",
    "id",
    "ID|all",
    example='all --why "repaired"',
)
_add(
    "drop",
    "Discard a parked message (or all).",
    lambda name, document: f"{document['parked']} left",
    "id",
    "ID|all",
    example='all --why "not needed any more"',
)
_add(
    "pause",
    "Pause a consumer: its worker finishes the current batch and waits.",
    _state,
    example='--why "the index is rebuilt"',
)
_add("resume", "Resume a paused consumer.", _state, example='--why "the index is ready"')


@click.command(epilog=EXIT_CODES)
@click.argument("name")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--bulk",
    type=click.IntRange(min=1),
    default=DEFAULT_BULK,
    show_default=True,
    help="Maximum batch size, in messages.",
)
@click.option("--worker", default="", metavar="TEXT", help="Unique name of this process.")
@click.option("--ws-url", help="Address of the WebSocket.  [default: /ws of --url]")
@click.option("--sse", is_flag=True, help="Use Server-Sent Events instead of a WebSocket.")
@json_option
@access_options
def consume(
    name: str, command: tuple[str, ...], sse: bool, as_json: bool, feed: Access, **options: Any
) -> None:
    """Run a worker of the consumer NAME until Ctrl-C: print its messages, or pass them to COMMAND.

    A batch has one line of JSON per message, with or without --json. The batch is printed, or is
    the input of one run of COMMAND. It is acknowledged when it was printed, or when COMMAND ends
    with 0. If COMMAND ends with another code, this command ends with 1. After a restart, the
    unacknowledged messages are delivered one by one.

    \b
    Examples:
      tidings consume search                        print each message
      tidings consume search --bulk 100 -- ./index  a hundred to a program
    """
    from tidings.client.worker import Worker

    worker = Worker(
        feed.url,
        name,
        feed=feed.feed,
        **feed.access,
        transport="sse" if sse else "ws",
        on_lost=retrying,
        **options,
    )
    with failures(), worker:
        stop_on_signals(worker.stop, within_s=None if command else PRINT_S)
        write = functools.partial(_to_command, command)
        worker.run(write if command else functools.partial(_to_stdout, worker))


def _to_stdout(worker: Worker, batch: Sequence[Message]) -> None:
    from tidings.client.worker import Overtaken

    try:
        click.echo(_lines(batch), nl=False)
    except BrokenPipeError:  # the reader of the pipe has ended; the message has not failed
        discard_output()
        worker.stop()
        raise Overtaken from None


def _to_command(command: Sequence[str], batch: Sequence[Message]) -> None:
    try:
        done = subprocess.run(command, input=_lines(batch).encode(), check=False)
    except OSError as error:
        raise Unwritten(0, f"{command[0]} cannot be run: {error.strerror}") from None
    if done.returncode:  # the batch is not acknowledged; the program may have handled only a part
        raise ClientError(f"{command[0]} ended with {done.returncode}")


def _lines(batch: Sequence[Message]) -> str:
    return "".join(f"{machine(Event(*message))}\n" for message in batch)


@click.group(epilog=EXIT_CODES)
def hooks() -> None:
    """Send events to webhooks, signed according to Standard Webhooks and retried for three days.

    A webhook has a named consumer of the same name. `tidings consumers` shows the parked messages
    of this consumer, sends them again, pauses the consumer and moves it to another position.

    \b
    Examples:
      tidings hooks create https://a.example/events --types video
      tidings hooks list
      tidings hooks attempts NAME
      tidings consumers retry NAME all --why "it is back"   all parked messages
      tidings consumers mark NAME ID --why "lost a day"     everything after ID
      tidings consumers resume NAME --why "it is back"      after an answer of 410
    """


@hooks.command("create", epilog=EXIT_CODES)
@click.argument("target", metavar="URL")
@click.option(
    "--name",
    default="",
    help="Name of the webhook and its consumer.  [default: its host and a random suffix]",
)
@click.option(
    "--from",
    "start",
    metavar="PLACE",
    default="now",
    show_default=True,
    help="Start: now, oldest or the id of a message.",
)
@click.option(
    "--format",
    type=click.Choice(["cloudevents", "debezium", "tidings"]),
    help="Format of the events.  [default: cloudevents]",
)
@click.option(
    "--attempts",
    type=click.IntRange(1, 10),
    help="Attempts before a message is parked: 10 take 75 hours, 4 take 35 minutes.  [default: 10]",
)
@filter_options
@erasures_option
@update_option
@json_option
@access_options
def create_hook(
    target: str,
    name: str,
    start: str,
    wanted: dict[str, list[str]],
    erasures: bool,
    update: bool,
    as_json: bool,
    feed: Access,
    **options: Any,
) -> None:
    """Send the events of a feed to URL, and print the signing secret, which is shown only once.

    If a webhook with the name of --name exists, the command changes nothing and ends with 1. With
    --update, it gets the address and the given options, and keeps its position, its secret and its
    other options; an empty list removes a filter.

    \b
    Examples:
      tidings hooks create https://a.example/events --types video
      tidings hooks create https://b.example/events --name films --format debezium
      tidings hooks create https://c.example/events --name films --update
    """
    if update and not name:
        raise click.UsageError("--update needs --name")
    from tidings.client.feed_api import NEW

    named = name or _name_of(target)
    given = {"url": target, **options, **wanted, **_if_set(erasures)}
    with feed.asking() as api:
        old = _existing(lambda: api.ask("GET", _path(named))) if update else None
        fields = (*_FILTERS, *_HOOK_FIELDS)
        kept = {} if old is None else {field: old.get(field) for field in fields}
        known = {field: value for field, value in given.items() if value is not None}
        body = {"from": start, **_without_empty(kept | known)}
        headers = {} if update else NEW
        with _exists(named):
            hook = api.ask("PUT", _path(named), body=body, headers=headers)
    for each in hook.get("warnings", ()):
        click.echo(f"Warning: {printable(each)}", err=True)
    lines = [f"{named} sends to {hook['url']}"]
    if "secret" in hook:
        lines.append(f"secret {hook['secret']}")
    answer(hook, "\n".join(lines), as_json=as_json)


@hooks.command("list", epilog=EXIT_CODES)
@json_option
@access_options
def list_hooks(as_json: bool, feed: Access) -> None:
    """Show all webhooks, each with its lag and its last error.

    \b
    Examples:
      tidings hooks list
      tidings hooks list --json | jq -r '.[].url'
    """
    answers = feed.ask("GET", "hooks")["hooks"]
    show_list(answers, _HOOKS, as_json=as_json, empty="no webhooks", row=_hook_row)


@hooks.command("show", epilog=EXIT_CODES)
@click.argument("name")
@json_option
@access_options
def show_hook(name: str, as_json: bool, feed: Access) -> None:
    """Show one webhook, as JSON, with or without --json.

    \b
    Example:
      tidings hooks show films | jq .failure
    """
    click.echo(compact(feed.ask("GET", _path(name))))


@hooks.command(epilog=EXIT_CODES)
@click.argument("name")
@json_option
@access_options
def attempts(name: str, as_json: bool, feed: Access) -> None:
    """Show the last 20 attempts to send to a webhook since the server's start, the latest first.

    \b
    Examples:
      tidings hooks attempts films
      tidings hooks attempts films --json | jq '.attempts[].status'
    """
    made = feed.ask("GET", f"{_path(name)}/attempts")
    if as_json:
        answer(made, "", as_json=True)
        return
    empty = f"no attempt since {made['since']}"
    show_list(made["attempts"], _ATTEMPTS, as_json=False, empty=empty, row=_attempt_row)


def _attempt_row(attempt: Mapping[str, Any]) -> dict[str, Any]:
    result = "accepted" if attempt["accepted"] else attempt["error"]
    return {**attempt, "ms": attempt["duration_ms"], "result": result}


@hooks.command(epilog=EXIT_CODES)
@click.argument("name")
@json_option
@access_options
def rotate(name: str, as_json: bool, feed: Access) -> None:
    """Create a new secret and print it; for a day, messages are signed with both secrets.

    \b
    Example:
      tidings hooks rotate films
    """
    made = feed.ask("POST", f"{_path(name)}/rotate", body={})
    answer(made, f"secret {made['secret']}", as_json=as_json)


@hooks.command("delete", epilog=EXIT_CODES)
@click.argument("name")
@why_options
@json_option
@access_options
def delete_hook(name: str, reason: dict[str, str], as_json: bool, feed: Access) -> None:
    """Delete a webhook, its position and its parked messages.

    \b
    Example:
      tidings hooks delete films --why "the service has ended"
    """
    deleted = feed.ask("DELETE", _path(name), query=reason)
    answer(deleted, f"{name} is deleted", as_json=as_json)


def _name_of(url: str) -> str:
    """Return the host of *url* with a random suffix, so that a host may have several webhooks."""
    host = (urlsplit(url).hostname or "hook").strip("[]").replace(":", "-")[:_NAME_CHARS]
    return f"{host.lstrip('-.') or 'hook'}-{secrets.token_hex(3)}"


def _hook_row(hook: Mapping[str, Any]) -> dict[str, Any]:
    failure = hook.get("failure")
    error = f"{failure['times']} times: {failure['error']}" if failure else None
    return {**hook, "failure": error}


def _path(name: str) -> str:
    return f"hooks/{quote(name, safe='')}"
