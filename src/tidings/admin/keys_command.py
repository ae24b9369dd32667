"""`tidings keys`: manage keys. A key is a credential with only the rights that a client needs."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import click

from tidings.admin.target import Target, host_target_options
from tidings.aws.effects import now_ms
from tidings.client.cli.main import EXIT_CODES
from tidings.client.cli.options import (
    URL_VARIABLE,
    Command,
    is_given,
    locate,
    password_options,
    timeout_option,
    user_name,
)
from tidings.client.cli.render import failures, printable
from tidings.client.operator import Operator
from tidings.core import limits
from tidings.core.auth.guard import Role
from tidings.core.auth.keys import Key, KeyIssuer, PresentedKey, bound_of, fresh
from tidings.core.model.feeds import HOST
from tidings.http.endpoints.keys import KeyReport, parse_lifetime

URL_HELP = f"Address of Tidings, to use its HTTP interface.  [env var: {URL_VARIABLE}]"
HEADINGS = ("id", "state", "roles", "bound", "until", "rate", "by", "label")
_WIDTHS = (12, 8, 18, 28, 20, 6, 12, 0)


def key_lines(key: Mapping[str, Any]) -> list[str]:
    """Return the fields of a key, a document of `http.endpoints.keys`, as lines of text."""
    rows = [
        ("feed", key["feed"]),
        ("id", key["id"]),
        ("state", key["state"]),
        ("roles", ", ".join(key["roles"])),
        ("bound", _bound(key) or "none: the whole feed"),
        ("expires", key["expires_at"] or "never"),
        ("rate", f"{key['rate']} a second" if key["rate"] else "no limit"),
        ("streams", f"{key['streams']} at once"),
        ("made", f"{key['made_at']} by {key['made_by'] or 'an unknown operator'}"),
    ]
    if "feeds" in key:
        names = ", ".join(f"{prefix}*" for prefix in key["feeds"] or ())
        rows[0] = ("feeds", names or "all of the host")
    optional = (("label", "label"), ("revoked", "revoked_at"), ("successor", "successor"))
    rows += [(name, key[field]) for name, field in optional if key[field]]
    return [f"{name:<10} {printable(value)}" for name, value in rows]


def key_table(keys: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line per key, after a line with the column names."""
    yield _line(HEADINGS)
    for key in keys:
        until = min(filter(None, (key["revoked_at"], key["expires_at"])), default="")
        roles, rate = ",".join(key["roles"]), str(key["rate"] or "")
        cells = roles, _bound(key), until, rate, key["made_by"], key["label"]
        yield _line((key["id"], key["state"], *cells))


def _line(cells: tuple[str, ...]) -> str:
    padded = (f"{printable(cell):<{width}}" for cell, width in zip(cells, _WIDTHS, strict=True))
    return "  ".join(padded).rstrip()


def _bound(key: Mapping[str, Any]) -> str:
    named = {name: key.get(name) for name in ("feeds", "types", "parents")}
    return " ".join(f"{name}={','.join(values)}" for name, values in named.items() if values)


class Duration(click.ParamType[int]):
    """A duration of at least *least_ms* in the format of Go, converted to milliseconds."""

    name = "duration"

    def __init__(self, least_ms: int = 1) -> None:
        self._least_ms = least_ms

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_lifetime(value, least_ms=self._least_ms)
        except ValueError as error:
            self.fail(f"{value!r} {error}", param, ctx)


json_option = click.option(
    "--json", "in_json", is_flag=True, help="Print a line of JSON for each key."
)
by_option = click.option(
    "--by",
    default=user_name,
    show_default="your user name",
    help="Name of the operator.  [default: USER]",
)


def url_or_target_options(command: Command) -> Command:
    """Add the options of `host_target_options`, and those of an address with a password.

    The command receives *target*, or *operator* if the keys are those at a URL; the other one is
    None. With *operator*, *of_host* says whether --host is given.
    """

    @functools.wraps(command)
    def with_target(target: Target, **others: Any) -> None:
        command(target=target, operator=None, of_host=False, **others)

    @functools.wraps(command)
    def with_operator(
        url: str, feed: str, host: bool, password: str, timeout_s: float | None, **others: Any
    ) -> None:
        operator = Operator(url, feed, password=password, timeout_s=timeout_s)
        with failures(), operator:
            command(target=None, operator=operator, of_host=host, **others)

    stored, asked = host_target_options(with_target), password_options(with_operator)

    @functools.wraps(command)
    def with_place(url: str | None, feed: str | None, context: str | None, **others: Any) -> None:
        is_stored = any(others[name] for name in ("stage", "endpoint_url", "data"))
        if url and is_stored:
            raise click.UsageError("name the keys once: by --url, or as the other options do")
        location = None if is_stored else locate(context, {"--url": url})
        if location is not None and location.url:
            for name in ("stage", "endpoint_url", "data"):
                del others[name]
            asked(url=location.url, feed=location.feed(feed), **others)
            return
        for name in ("password_file", "password", "timeout_s"):
            del others[name]
        stored(feed=feed, context=context, **others)

    return click.option("--url", help=URL_HELP)(timeout_option(with_place))


@click.group(epilog=EXIT_CODES)
def keys() -> None:
    """Manage the keys of a feed: one for each client that reads, posts or administers.

    A key is used like a password: by HTTP Basic with any user name, as a bearer token, or in the
    field `password` of a WebSocket message. Never put it into a URL. A revoked key is refused
    within five seconds, and clients that are connected with it are disconnected.

    \b
    Examples:
      tidings keys create --stage dev --role read --parent user/42 --expires 24h
      tidings keys create --stage dev --role ingest --label "the shop" --rate 50
      tidings keys create --host --role admin --feeds team-a- --stage dev
      tidings keys list --stage dev
      tidings keys revoke 3k2m9c0q8xw1 --stage dev
      tidings keys rotate 3k2m9c0q8xw1 --stage dev --overlap 24h
    """


@keys.command(epilog=EXIT_CODES)
@url_or_target_options
@click.option(
    "--role",
    "roles",
    multiple=True,
    required=True,
    type=click.Choice([role.value for role in Role]),
    help="Role that the key grants; repeatable.",
)
@click.option(
    "--feeds",
    multiple=True,
    metavar="PREFIX",
    help="With --host: allow only feeds with names that begin with PREFIX; repeatable.",
)
@click.option("--type", "types", multiple=True, help="Allow this type only; repeatable.")
@click.option("--parent", "parents", multiple=True, help="Allow this parent only; repeatable.")
@click.option(
    "--expires", type=Duration(), default=0, help="Lifetime, such as 24h.  [default: no end]"
)
@click.option("--rate", type=int, default=0, help="Maximum number of requests per second.")
@click.option(
    "--streams",
    type=int,
    default=0,
    help=f"Maximum number of open streams.  [default: {limits.KEY_STREAMS}]",
)
@click.option("--label", default="", help="Purpose of the key, shown in the list.")
@by_option
@json_option
def create(
    target: Target | None,
    operator: Operator | None,
    of_host: bool,
    roles: tuple[str, ...],
    feeds: tuple[str, ...],
    types: tuple[str, ...],
    parents: tuple[str, ...],
    expires: int,
    rate: int,
    streams: int,
    label: str,
    by: str,
    in_json: bool,
) -> None:
    """Create a key and print it. The key cannot be shown again.

    With --host, the key is valid for all feeds of the host, or for those that --feeds permits. With
    the role admin, it also creates and deletes feeds (`tidings feeds`).

    With --url, the password is a key with the role admin, or the ingest password. The new key has
    at most its rights, and its name as the creator.

    \b
    Examples:
      tidings keys create --stage dev --role read
      tidings keys create --stage dev --host --role admin --feeds team-a-
      tidings keys create --stage dev --role read --role ingest --parent user/42
      tidings keys create --endpoint-url http://127.0.0.1:8000 --role admin --json
      tidings keys create --url https://feed.example --role read --expires 24h
    """
    if feeds and not (of_host if target is None else target.feed == HOST):
        raise click.UsageError("--feeds is for keys of the host; add --host")
    if operator is not None and is_given("by"):
        raise click.UsageError("--by is not for --url: the creator is the password's key")
    if operator is not None:
        made = operator.create_key(
            roles,
            types=types,
            parents=parents,
            expires=f"{expires}ms" if expires else "",
            rate=rate,
            streams=streams,
            label=label,
            feeds=feeds,
            host=of_host,
        )
        _print_new(made, in_json=in_json)
        return
    assert target is not None
    given = fresh(os.urandom)
    wanted = Key(
        "",
        "",
        frozenset(map(Role, roles)),
        bound_of(types, parents),
        expires_ms=now_ms() + expires if expires else 0,
        rate=rate,
        streams=streams,
        label=label,
        made_by=by,
        feeds=feeds,
    )
    stored = _issuer(target).create(target.feed, given, wanted)
    _print_new(_new_document(target, given, stored), in_json=in_json)


@keys.command("list", epilog=EXIT_CODES)
@url_or_target_options
@json_option
def list_(target: Target | None, operator: Operator | None, of_host: bool, in_json: bool) -> None:
    """Show the keys of a feed, including those that ended within the last month.

    \b
    Examples:
      tidings keys list --stage dev
      tidings keys list --stage dev --json | jq 'select(.state == "holds")'
    """
    if operator is not None:
        found = operator.list_keys(host=of_host)
    else:
        assert target is not None
        found = [_document(target, key) for key in target.keys.keys(target.feed)]
    for line in map(json.dumps, found) if in_json else key_table(found):
        click.echo(line)


@keys.command(epilog=EXIT_CODES)
@click.argument("id")
@host_target_options
@json_option
def show(target: Target, id: str, in_json: bool) -> None:
    """Show the rights of a key. The key's secret is not stored and cannot be shown.

    \b
    Example:
      tidings keys show 3k2m9c0q8xw1 --stage dev
    """
    _print_key(_document(target, _issuer(target).find(target.feed, id)), in_json=in_json)


@keys.command(epilog=EXIT_CODES)
@click.argument("id")
@url_or_target_options
@json_option
def revoke(
    target: Target | None, operator: Operator | None, of_host: bool, id: str, in_json: bool
) -> None:
    """Revoke a key; within five seconds, it is refused and its connections are closed.

    \b
    Example:
      tidings keys revoke 3k2m9c0q8xw1 --stage dev
    """
    if operator is not None:
        ended = operator.revoke_key(id, host=of_host)
    else:
        assert target is not None
        ended = _document(target, _issuer(target).revoke(target.feed, id))
    _print_key(ended, in_json=in_json)


@keys.command(epilog=EXIT_CODES)
@click.argument("id")
@host_target_options
@click.option(
    "--overlap",
    type=Duration(least_ms=0),
    default="24h",
    show_default=True,
    help="How long the old key stays valid; 0 revokes it at once.",
)
@by_option
@json_option
def rotate(target: Target, id: str, overlap: int, by: str, in_json: bool) -> None:
    """Create a key with the rights of the key ID, print it once, and let the old key expire.

    \b
    Example:
      tidings keys rotate 3k2m9c0q8xw1 --stage dev --overlap 24h
    """
    given = fresh(os.urandom)
    made = _issuer(target).rotate(target.feed, id, given, overlap, by)
    _print_new(_new_document(target, given, made), in_json=in_json)


def _issuer(target: Target) -> KeyIssuer:
    return KeyIssuer(target.keys, target.profiles, now_ms)


def _document(target: Target, key: Key) -> dict[str, Any]:
    return KeyReport.of(target.feed, key, now_ms()).document()


def _new_document(target: Target, given: PresentedKey, made: Key) -> dict[str, Any]:
    return {"key": given.encode(), **_document(target, made)}


def _print_new(made: Mapping[str, Any], *, in_json: bool) -> None:
    """Print the key on stdout and its description on stderr; if *in_json*, both on stdout."""
    if in_json:
        click.echo(json.dumps(made))
        return
    click.echo(made["key"])
    for line in key_lines(made):
        click.echo(line, err=True)


def _print_key(key: Mapping[str, Any], *, in_json: bool) -> None:
    for line in [json.dumps(key)] if in_json else key_lines(key):
        click.echo(line)
