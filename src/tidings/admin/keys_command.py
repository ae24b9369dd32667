"""`tidings keys`: manage keys. A key is a credential with only the rights that a client needs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import click

from tidings.admin.target import stored_options
from tidings.aws.effects import now_ms
from tidings.client.cli.options import user_name
from tidings.client.cli.render import labelled, printable, table
from tidings.client.cli.resources import Call, Option, Resource
from tidings.core.auth.keys import KeyIssuer, KeyStore
from tidings.core.records import RecordStore
from tidings.core.settings.profiles import ProfileStore
from tidings.http.endpoints.keys import KeyRouter

HEADINGS = ("id", "state", "roles", "bound", "until", "rate", "by", "label")


def _routes(records: RecordStore) -> KeyRouter:
    issuer = KeyIssuer(KeyStore(records), ProfileStore(records), now_ms)
    unused: Any = None  # the operator has all rights, and the feed has been found
    return KeyRouter(issuer=issuer, guard=unused, new_key=os.urandom)


def _show(key: Mapping[str, Any]) -> str:
    """Return the fields of a key as lines of text."""
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
    return labelled(((name, printable(value)) for name, value in rows), 10)


def _print_new(made: Mapping[str, Any]) -> None:
    """Print the key on stdout and its description on stderr."""
    click.echo(made["key"])
    click.echo(_show(made), err=True)


def _row(key: Mapping[str, Any]) -> dict[str, Any]:
    until = min(filter(None, (key["revoked_at"], key["expires_at"])), default="")
    shown = {"roles": ",".join(key["roles"]), "bound": _bound(key), "by": key["made_by"]}
    return {**key, **shown, "until": until, "rate": str(key["rate"] or "")}


def _bound(key: Mapping[str, Any]) -> str:
    named = {name: key.get(name) for name in ("feeds", "types", "parents")}
    return " ".join(f"{name}={','.join(values)}" for name, values in named.items() if values)


keys = Resource(
    "keys",
    """
    Manage the keys of a feed: one for each client that reads, posts or administers.

    A key is used like a password: by HTTP Basic with any user name, as a bearer token, or in the
    field `password` of a WebSocket message. Never put it into a URL. A revoked key is refused
    within five seconds, and clients that are connected with it are disconnected.
    """,
    "create --stage dev --role read --parent user/42 --expires 24h",
    'create --stage dev --role ingest --label "the shop" --rate 50',
    "create --host --role admin --feeds team-a- --stage dev",
    "list --stage dev",
    "revoke 3k2m9c0q8xw1 --stage dev",
    "rotate 3k2m9c0q8xw1 --stage dev --overlap 24h",
    placed=stored_options(_routes, of_host=True),
    each="key",
    options={
        "host": None,
        "roles": Option(
            name="--role", is_repeated=True, text="Role that the key grants; repeatable."
        ),
        "types": Option(name="--type", is_repeated=True, text="Allow this type only; repeatable."),
        "parents": Option(
            name="--parent", is_repeated=True, text="Allow this parent only; repeatable."
        ),
        "feeds": Option(
            metavar="PREFIX",
            is_repeated=True,
            text="With --host: allow only feeds with names that begin with PREFIX; repeatable.",
        ),
        "overlap": Option(default="24h"),
    },
)
_by_option = click.option(
    "--by",
    default=user_name,
    show_default="your user name",
    help="Name of the operator.  [default: USER]",
)


def _create(call: Call) -> Any:
    if "feeds" in call.given and not call.is_of_host:
        raise click.UsageError("--feeds is for keys of the host; add --host")
    return call.send()


keys.add(
    "create",
    KeyRouter.create_key,
    """
    Create a key and print it. The key cannot be shown again.

    With --host, the key is valid for all feeds of the host, or for those that --feeds permits. With
    the role admin, it also creates and deletes feeds (`tidings feeds`).

    With --url, the password is a key with the role admin, or the ingest password. The new key has
    at most its rights, and its name as the creator.
    """,
    "--stage dev --role read",
    "--stage dev --host --role admin --feeds team-a-",
    "--stage dev --role read --role ingest --parent user/42",
    "--endpoint-url http://127.0.0.1:8000 --role admin --json",
    "--url https://feed.example --role read --expires 24h",
    shows=_print_new,
    by=_create,
    others=[_by_option],
)
keys.add(
    "list",
    KeyRouter.list_keys,
    "Show the keys of a feed, including those that ended within the last month.",
    "--stage dev",
    "--stage dev --json | jq 'select(.state == \"holds\")'",
    shows=lambda keys: table(HEADINGS, [*map(_row, keys)]),
    part="keys",
)
keys.add(
    "show",
    KeyRouter.show_key,
    "Show the rights of a key. The key's secret is not stored and cannot be shown.",
    "3k2m9c0q8xw1 --stage dev",
    shows=_show,
)
keys.add(
    "revoke",
    KeyRouter.revoke_key,
    "Revoke a key; within five seconds, it is refused and its connections are closed.",
    "3k2m9c0q8xw1 --stage dev",
    shows=_show,
)
keys.add(
    "rotate",
    KeyRouter.rotate_key,
    "Create a key with the rights of the key ID, print it once, and let the old key expire.",
    "3k2m9c0q8xw1 --stage dev --overlap 24h",
    shows=_print_new,
    others=[_by_option],
)
