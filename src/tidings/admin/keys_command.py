"""`tidings keys`: manage keys. A key is a credential with only the rights that a client needs."""

from __future__ import annotations

import getpass
import json
import os
from collections.abc import Iterable, Iterator
from typing import Any

import click

from tidings.admin.target import Target, host_target_options
from tidings.aws.effects import now_ms
from tidings.client.cli.main import EXIT_CODES
from tidings.core import limits
from tidings.core.auth.guard import Role
from tidings.core.auth.keys import (
    Key,
    KeyIssuer,
    PresentedKey,
    bound_of,
    fresh,
)
from tidings.core.errors import InvalidSetting
from tidings.core.model.feeds import HOST, public_name
from tidings.core.model.timestamps import from_ms
from tidings.http.endpoints.keys import key_document, key_state, parse_lifetime

HEADINGS = ("id", "state", "roles", "bound", "until", "rate", "by", "label")
_WIDTHS = (12, 8, 18, 28, 20, 6, 12, 0)


def key_lines(feed: str, key: Key, now_ms: int) -> list[str]:
    """Return the fields of a key as lines of text."""
    rows = [
        ("feed", public_name(feed)),
        ("id", key.id),
        ("state", key_state(key, now_ms)),
        ("roles", ", ".join(_roles(key))),
        ("bound", _bound(key) or "none: the whole feed"),
        ("expires", from_ms(key.expires_ms) if key.expires_ms else "never"),
        ("rate", f"{key.rate} a second" if key.rate else "no limit"),
        ("streams", f"{key.streams or limits.KEY_STREAMS} at once"),
        ("made", f"{from_ms(key.made_ms)} by {key.made_by or 'an unknown operator'}"),
    ]
    if feed == HOST:
        names = ", ".join(f"{prefix}*" for prefix in key.feeds)
        rows[0] = ("feeds", names or "all of the host")
    if key.label:
        rows.append(("label", key.label))
    if key.revoked_ms:
        rows.append(("revoked", from_ms(key.revoked_ms)))
    if key.successor:
        rows.append(("successor", key.successor))
    return [f"{name:<10} {value}" for name, value in rows]


def key_table(keys: Iterable[Key], now_ms: int) -> Iterator[str]:
    """Yield a line per key, after a line with the column names."""
    yield _line(HEADINGS)
    for key in keys:
        until = from_ms(key.ended_ms) if key.ended_ms else ""
        state, rate = key_state(key, now_ms), str(key.rate or "")
        roles = ",".join(_roles(key))
        yield _line((key.id, state, roles, _bound(key), until, rate, key.made_by, key.label))


def _line(cells: tuple[str, ...]) -> str:
    padded = (f"{cell:<{width}}" for cell, width in zip(cells, _WIDTHS, strict=True))
    return "  ".join(padded).rstrip()


def _roles(key: Key) -> list[str]:
    return sorted(role.value for role in key.roles)


def _bound(key: Key) -> str:
    named = {"feeds": key.feeds or None, "types": key.bound.types, "parents": key.bound.parents}
    return " ".join(
        f"{name}={','.join(sorted(values))}" for name, values in named.items() if values is not None
    )


class Duration(click.ParamType[int]):
    """A duration in the format of Go, converted to milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_lifetime(value)
        except InvalidSetting as error:
            self.fail(f"{value!r} {error.rule}", param, ctx)


json_option = click.option(
    "--json", "in_json", is_flag=True, help="Print a line of JSON for each key."
)
by_option = click.option(
    "--by",
    default=getpass.getuser,
    show_default="your user name",
    help="Name of the operator.  [default: USER]",
)


@click.group(epilog=EXIT_CODES)
def keys() -> None:
    """
    Manage the keys of a feed: one for each client that reads, posts or administers.

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
@host_target_options
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
    target: Target,
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
    """
    Create a key and print it. The key cannot be shown again.

    With --host, the key is valid for all feeds of the host, or for those that --feeds permits. With
    the role admin, it also creates and deletes feeds (`tidings feeds`).

    \b
    Examples:
      tidings keys create --stage dev --role read
      tidings keys create --stage dev --host --role admin --feeds team-a-
      tidings keys create --stage dev --role read --role ingest --parent user/42
      tidings keys create --endpoint-url http://127.0.0.1:8000 --role admin --json
    """
    if feeds and target.feed != HOST:
        raise click.UsageError("--feeds is for keys of the host; add --host")
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
    _print_new(target, given, _issuer(target).create(target.feed, given, wanted), in_json=in_json)


@keys.command("list", epilog=EXIT_CODES)
@host_target_options
@json_option
def list_(target: Target, in_json: bool) -> None:
    """
    Show the keys of a feed, including those that ended within the last month.

    \b
    Examples:
      tidings keys list --stage dev
      tidings keys list --stage dev --json | jq 'select(.state == "holds")'
    """
    now = now_ms()
    if in_json:
        for key in target.keys.keys(target.feed):
            click.echo(json.dumps(key_document(target.feed, key, now)))
        return
    for line in key_table(target.keys.keys(target.feed), now):
        click.echo(line)


@keys.command(epilog=EXIT_CODES)
@click.argument("id")
@host_target_options
@json_option
def show(target: Target, id: str, in_json: bool) -> None:
    """
    Show the rights of a key. The key's secret is not stored and cannot be shown.

    \b
    Example:
      tidings keys show 3k2m9c0q8xw1 --stage dev
    """
    _print_key(target, _issuer(target).find(target.feed, id), in_json=in_json)


@keys.command(epilog=EXIT_CODES)
@click.argument("id")
@host_target_options
@json_option
def revoke(target: Target, id: str, in_json: bool) -> None:
    """
    Revoke a key; within five seconds, it is refused and its connections are closed.

    \b
    Example:
      tidings keys revoke 3k2m9c0q8xw1 --stage dev
    """
    _print_key(target, _issuer(target).revoke(target.feed, id), in_json=in_json)


@keys.command(epilog=EXIT_CODES)
@click.argument("id")
@host_target_options
@click.option(
    "--overlap",
    type=Duration(),
    default="24h",
    show_default=True,
    help="How long the old key stays valid; 0 revokes it at once.",
)
@by_option
@json_option
def rotate(target: Target, id: str, overlap: int, by: str, in_json: bool) -> None:
    """
    Create a key with the rights of the key ID, print it once, and let the old key expire.

    \b
    Example:
      tidings keys rotate 3k2m9c0q8xw1 --stage dev --overlap 24h
    """
    given = fresh(os.urandom)
    made = _issuer(target).rotate(target.feed, id, given, overlap, by)
    _print_new(target, given, made, in_json=in_json)


def _issuer(target: Target) -> KeyIssuer:
    return KeyIssuer(target.keys, target.profiles, now_ms)


def _print_new(target: Target, given: PresentedKey, made: Key, *, in_json: bool) -> None:
    """Print the key on stdout and its description on stderr; if *in_json*, both on stdout."""
    if in_json:
        shown = key_document(target.feed, made, now_ms())
        click.echo(json.dumps({"key": given.encode(), **shown}))
        return
    click.echo(given.encode())
    for line in key_lines(target.feed, made, now_ms()):
        click.echo(line, err=True)


def _print_key(target: Target, key: Key, *, in_json: bool) -> None:
    if in_json:
        click.echo(json.dumps(key_document(target.feed, key, now_ms())))
        return
    for line in key_lines(target.feed, key, now_ms()):
        click.echo(line)
