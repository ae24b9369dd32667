"""`tidings consumers`, `consume` and `hooks`: the named consumers of a feed, and its webhooks."""

from __future__ import annotations

import functools
import secrets
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from tidings.client.address import NEW
from tidings.client.cli import render
from tidings.client.cli.main import EXIT_CODES, discard_output
from tidings.client.cli.options import Access, access_options, json_option, user_name
from tidings.client.cli.resources import Call, Option, Resource
from tidings.client.errors import ClientError, Refused, Unwritten
from tidings.client.events import Event
from tidings.client.retries import PRINT_S, stop_on_signals
from tidings.core.model.filters import FIELDS
from tidings.http.endpoints.consumers import ConsumerRouter
from tidings.http.endpoints.hooks import WebhookRouter
from tidings.http.wire import fields_of

if TYPE_CHECKING:
    from tidings.client.feed_api import Answer
    from tidings.client.worker import Message, Worker

DEFAULT_BULK = 500
_COLUMNS = ("name", "state", "position", "lag_pages", "lag_ms", "parked", "worker")
_FIELDS = (
    *_COLUMNS,
    *("copying", "acked", "single_through", *FIELDS, "erasures", "retries", "failure", "written"),
)
_HOOKS = ("name", "state", "url", "lag_ms", "parked", "failure")
_ATTEMPTS = ("at", "id", "number", "status", "duration_ms", "result")
_NAME_CHARS = 50  # maximum length of the host in a webhook's name, which has up to 63 characters

_FIELD_OPTIONS = {
    "from": Option(metavar="PLACE", default="oldest"),
    "types": Option(metavar="A,B"),
    "parents": Option(metavar="X,Y"),
    "ids": Option(metavar="I,J"),
    "why": Option(metavar="TEXT", text="Reason, stored with the change."),
    "by": Option(
        metavar="NAME",
        default=lambda: f"{user_name()}@{socket.gethostname()}",
        text="Name of the operator.  [default: USER@HOST]",
    ),
}
_update_option = click.option(
    "--update", is_flag=True, help="If the name exists, change the given fields, keep the others."
)

consumers = Resource(
    "consumers",
    """
    Show and steer the named consumers of a feed, while they run.

    A command that changes a consumer takes a reason, which is stored with the operator's name.

    \b
    Examples:
      tidings consumers create search --types video
      tidings consumers list
      tidings consumers park search --why "data too long"    the next message
      tidings consumers retry search all --why "repaired"    all parked messages
      tidings consumers mark search ID --why "sent by hand"  continue after ID
    """,
    options=_FIELD_OPTIONS,
)
consumers.add(
    "list",
    ConsumerRouter.list_consumers,
    "Show all consumers, each with its lag and its worker.",
    "",
    "--json | jq '.[] | select(.lag_ms > 60000)'",
    shows=lambda found: render.rows(found, _COLUMNS, empty="no named consumers"),
    part="consumers",
)


def _with_messages(call: Call) -> Answer:
    """Return a consumer with its parked messages and notes."""
    parked = call.send(ConsumerRouter.list_parked_messages)["parked"]
    notes = call.send(ConsumerRouter.list_notes)["notes"]
    return call.send() | {"messages": parked, "notes": notes}


def _show(consumer: Answer) -> str:
    shown = [
        (render.without_unit(name), render.cell(value, of=name))
        for name in _FIELDS
        if (value := consumer.get(name)) is not None
        and value is not False
        and value not in ("", [])  # zeros are shown
    ]
    for each in consumer["messages"]:
        shown.append(
            ("parked", f"{each['id']} after {each['attempts']}: {render.cell(each['error'])}")
        )
    for each in consumer["notes"]:
        about = f"{each['what']} {each['id']}" if "id" in each else each["what"]
        shown.append(("note", f"{about} by {render.cell(each['who'])}: {render.cell(each['why'])}"))
    return render.labelled(shown, 15)


consumers.add(
    "show",
    ConsumerRouter.get_consumer,
    "Show one consumer, its failed message, and its parked messages.",
    "search",
    shows=_show,
    by=_with_messages,
)


def _position(consumer: Answer) -> str:
    return f"{consumer['name']} is at {consumer['position'] or render.NONE}"


def _state(consumer: Answer) -> str:
    return f"{consumer['name']} is {consumer['state']}"


def _put(call: Call) -> Answer:
    """Create a consumer or webhook, or with --update change the given fields of an existing one."""
    body, is_update = call.given, call.others["update"]
    if is_update:
        show = WebhookRouter.get_webhook if "url" in body else ConsumerRouter.get_consumer
        try:
            old = call.send(show)
        except Refused as error:
            if error.code not in ("unknown_consumer", "unknown_webhook"):
                raise
            old = {}
        fields = fields_of(call.route.parameters["body"])
        body |= {name: old.get(name) for name in fields if name not in body}
    for name in [name for name, value in body.items() if value in (None, [], "", False)]:
        del body[name]
    try:
        return call.send(headers={} if is_update else NEW)
    except Refused as error:
        if error.code not in ("consumer_exists", "webhook_exists"):
            raise
        rule = "exists already; use --update to change it"
        raise click.ClickException(f"{render.printable(call.names['name'])} {rule}") from None


consumers.add(
    "create",
    ConsumerRouter.put_consumer,
    """
    Register a consumer.

    From now on, the feed keeps the part of the log that the consumer has not read. If the consumer
    exists, the command changes nothing and ends with 1. With --update, an existing consumer gets
    the given filters, and keeps its position and its other filters; an empty list removes a filter.
    """,
    "search --types video",
    "search --types video,film --update",
    "audit --from copy",
    shows=_position,
    by=_put,
    others=[_update_option],
)
consumers.add(
    "delete",
    ConsumerRouter.delete_consumer,
    "Delete a consumer and its parked messages, and stop keeping the log for this consumer.",
    'search --why "replaced by search-2"',
    shows=lambda deleted: f"{deleted['deleted']} is deleted",
)


_which = Option(is_argument=True, metavar="ID|all")


consumers.add(
    "mark",
    ConsumerRouter.mark_consumer,
    """
    Move a consumer to POSITION: oldest, now, copy or the id of a message.

    If POSITION is ahead, everything up to POSITION is acknowledged without being sent. If
    POSITION is back, everything after POSITION is sent again.
    """,
    'search now --why "the backlog is not needed"',
    shows=_position,
    options={"position": Option(is_argument=True)},
)


consumers.add(
    "step",
    ConsumerRouter.step_consumer,
    "Acknowledge the next message without sending it.",
    'search --why "sent by hand"',
    shows=lambda found: render.describe_entry(found["stepped"]),
)
consumers.add(
    "park",
    ConsumerRouter.park_message,
    "Park the next message with its last error, and continue with the others.",
    'search --why "data too long"',
    shows=lambda found: render.describe_entry(found["parked"]),
)
consumers.add(
    "retry",
    ConsumerRouter.retry_parked_messages,
    "Send a parked message (or all) again, alone and out of turn.",
    'search all --why "repaired"',
    shows=lambda found: f"{len(found['retries'])} to be sent again",
    options={"id": _which},
)
consumers.add(
    "drop",
    ConsumerRouter.drop_parked_messages,
    "Discard a parked message (or all).",
    'search all --why "not needed any more"',
    shows=lambda found: f"{found['parked']} left",
    options={"id": _which},
)
consumers.add(
    "pause",
    ConsumerRouter.pause_consumer,
    "Pause a consumer: its worker finishes the current batch and waits.",
    'search --why "the index is rebuilt"',
    shows=_state,
)
consumers.add(
    "resume",
    ConsumerRouter.resume_consumer,
    "Resume a paused consumer.",
    'search --why "the index is ready"',
    shows=_state,
)


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
        on_lost=render.retry_reporter(),
        **options,
    )
    with render.failures(), worker:
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
    return "".join(f"{render.machine(Event(*message))}\n" for message in batch)


hooks = Resource(
    "hooks",
    """
    Send events to webhooks, signed according to Standard Webhooks and retried for three days.

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
    """,
    options=_FIELD_OPTIONS | {"secret": None, "url": Option(is_argument=True, metavar="URL")},
)


def _put_hook(call: Call) -> Answer:
    if call.others["update"] and not call.names["name"]:
        raise click.UsageError("--update needs --name")
    name = call.names["name"]
    if not name:  # with a random suffix, so that a host may have several webhooks
        host = (urlsplit(call.given["url"]).hostname or "hook").strip("[]").replace(":", "-")
        name = f"{host[:_NAME_CHARS].lstrip('-.') or 'hook'}-{secrets.token_hex(3)}"
    hook = _put(replace(call, names={**call.names, "name": name}))
    for each in hook.get("warnings", ()):
        click.echo(f"Warning: {render.printable(each)}", err=True)
    return hook


def _created(hook: Answer) -> str:
    secret = f"\nsecret {hook['secret']}" if "secret" in hook else ""
    return f"{hook['name']} sends to {hook['url']}{secret}"


hooks.add(
    "create",
    WebhookRouter.put_webhook,
    """
    Send the events of a feed to URL, and print the signing secret, which is shown only once.

    If a webhook with the name of --name exists, the command changes nothing and ends with 1. With
    --update, it gets the address and the given options, and keeps its position, its secret and its
    other options; an empty list removes a filter.
    """,
    "https://a.example/events --types video",
    "https://b.example/events --name films --format debezium",
    "https://c.example/events --name films --update",
    shows=_created,
    by=_put_hook,
    others=[_update_option],
    options={
        "name": Option(
            default="",
            text="Name of the webhook and its consumer.  [default: its host and a random suffix]",
        ),
        "from": Option(metavar="PLACE", default="now"),
    },
)


def _list_hooks(found: list[Answer]) -> Any:

    def row(hook: Mapping[str, Any]) -> dict[str, Any]:
        failure = hook.get("failure")
        error = f"{failure['times']} times: {failure['error']}" if failure else None
        return {**hook, "failure": error}

    return render.rows(found, _HOOKS, empty="no webhooks", row=row)


hooks.add(
    "list",
    WebhookRouter.list_webhooks,
    "Show all webhooks, each with its lag and its last error.",
    "",
    "--json | jq -r '.[].url'",
    shows=_list_hooks,
    part="hooks",
)
hooks.add(
    "show",
    WebhookRouter.get_webhook,
    "Show one webhook, as JSON, with or without --json.",
    "films | jq .failure",
    shows=render.compact,
)


def _attempts(made: Answer) -> Any:

    def row(attempt: Mapping[str, Any]) -> dict[str, Any]:
        result = "accepted" if attempt["accepted"] else attempt["error"]
        return {**attempt, "result": result}

    return render.rows(
        made["attempts"], _ATTEMPTS, empty=f"no attempt since {made['since']}", row=row
    )


hooks.add(
    "attempts",
    WebhookRouter.list_webhook_attempts,
    "Show the last 20 attempts to send to a webhook since the server's start, the latest first.",
    "films",
    "films --json | jq '.attempts[].status'",
    shows=_attempts,
)
hooks.add(
    "rotate",
    WebhookRouter.rotate_webhook_secret,
    "Create a new secret and print it; for a day, messages are signed with both secrets.",
    "films",
    shows=lambda made: f"secret {made['secret']}",
)
hooks.add(
    "delete",
    WebhookRouter.delete_webhook,
    "Delete a webhook, its position and its parked messages.",
    'films --why "the service has ended"',
    shows=lambda deleted: f"{deleted['deleted']} is deleted",
)
