"""`tidings stages`: list the stages of the account, their addresses, costs, and due rotations."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

import click

from tidings.admin.target import boto3, one_sentence_errors
from tidings.aws.config import stages as deployed
from tidings.aws.config.stages import STAGE_TAG
from tidings.aws.effects import now_ms
from tidings.client.cli.main import EXIT_CODES
from tidings.core.auth.guard import Role, passwords_of
from tidings.core.auth.keys import Key, KeyStore
from tidings.core.auth.passwords import set_at_ms
from tidings.core.model.timestamps import DAY_MS, from_ms
from tidings.core.settings.profiles import Profile, ProfileStore
from tidings.http.endpoints.keys import key_state

REQUEST_DOLLARS = 0.01  # price of a request to Cost Explorer; a long answer needs several requests
REGION = "us-east-1"  # Cost Explorer has one endpoint for all Regions, in this Region
_METRIC = "UnblendedCost"
_LEAST = 0.00005  # dollars; smaller amounts would show as 0.0000

Spent = Mapping[str, Mapping[str, float]]  # dollars by stage and service
Stage = dict[str, Any]
DAYS = 90  # the rotation period in most password policies
_ADDRESSES = ("feed_url", "stream_url", "sockets_url")


def costs_on(day: date, explorer: Any) -> Spent:
    """Return the costs on *day* (UTC) in dollars, by stage and service; query all stages at once.

    The stage "" has the costs of resources without the tag, and the costs of all resources before
    the tag was activated for cost allocation.
    """
    request: dict[str, Any] = {
        "TimePeriod": {"Start": day.isoformat(), "End": (day + timedelta(days=1)).isoformat()},
        "Granularity": "DAILY",
        "Metrics": [_METRIC],
        "GroupBy": [{"Type": "TAG", "Key": STAGE_TAG}, {"Type": "DIMENSION", "Key": "SERVICE"}],
    }
    found: defaultdict[str, dict[str, float]] = defaultdict(dict)
    while True:
        page = explorer.get_cost_and_usage(**request)
        for result in page["ResultsByTime"]:
            for group in result["Groups"]:
                tag, service = group["Keys"]
                dollars = float(group["Metrics"][_METRIC]["Amount"])
                if dollars >= _LEAST:
                    found[tag.partition("$")[2]][service] = dollars
        if "NextPageToken" not in page:
            return found
        request["NextPageToken"] = page["NextPageToken"]


def cost_document(spent: Spent, stage: str, day: date) -> dict[str, Any]:
    """Return the costs of *stage*, highest first; "tagged": false if no resource has the tag."""
    services = sorted(spent.get(stage, {}).items(), key=lambda each: -each[1])
    return {
        "day": day.isoformat(),
        "dollars": round(sum(dollars for _, dollars in services), 4),
        "services": {service: round(dollars, 4) for service, dollars in services},
        "tagged": any(spent),
    }


@click.command(epilog=EXIT_CODES)
@click.argument("name", required=False)
@click.option(
    "--older-than",
    "days",
    type=click.IntRange(0),
    default=DAYS,
    show_default=True,
    metavar="DAYS",
    help="Report passwords and keys of at least this age as due for rotation.",
)
@click.option(
    "--cost",
    is_flag=True,
    help=f"Also print yesterday's cost of each stage; AWS bills ${REQUEST_DOLLARS:.2f} for it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each stage.")
def stages(name: str | None, days: int, cost: bool, as_json: bool) -> None:
    """List the stages of the account, or the stage NAME: addresses, feeds, passwords, keys.

    For a password, its role and age are shown, for a key its id, age and label. Costs are found by
    the tag tidings:stage, which must be activated for cost allocation in Billing. AWS computes
    costs a day late, so yesterday's costs are shown.

    \b
    Examples:
      tidings stages
      tidings stages prod --older-than 30 --json
      tidings stages --cost
    """
    with one_sentence_errors():
        listed = [_read_stage(stage, days) for stage in _find_stages(name)]
        if cost and listed:
            _add_costs(listed)
    if not listed and name is None:
        click.echo("No stage found in this account and Region.", err=True)
    for stage in listed:
        click.echo(json.dumps(stage) if as_json else "\n".join(_lines(stage)))


def _add_costs(listed: list[Stage]) -> None:
    """Add yesterday's costs (UTC) to each stage; query all stages at once."""
    yesterday = datetime.fromtimestamp(now_ms() / 1000, UTC).date() - timedelta(days=1)
    explorer = boto3().client("ce", region_name=REGION)
    found = costs_on(yesterday, explorer)
    for stage in listed:
        stage["cost"] = cost_document(found, stage["stage"], yesterday)


def _find_stages(name: str | None) -> list[deployed.Exposed]:
    cloudformation = boto3().client("cloudformation")
    if name is not None:
        return [deployed.public_description(name, cloudformation)]
    return deployed.find_stages(cloudformation)


def _read_stage(stage: deployed.Exposed, days: int) -> Stage:
    from tidings.aws.dynamodb.records import DynamoDBRecords

    records = DynamoDBRecords(boto3().client("dynamodb"), stage.control_table)
    profiles, keys = ProfileStore(records), KeyStore(records)
    addresses = dict(zip(_ADDRESSES, stage.addresses, strict=True))
    feeds = [
        {
            "feed": feed,
            "passwords": list(_passwords(profiles.profile(feed), days)),
            "keys": list(_keys(keys.keys(feed), days)),
        }
        for feed in sorted(stage.feeds)
    ]
    return {"stage": stage.stage, **addresses, "feeds": feeds}


def _passwords(profile: Profile, days: int) -> Iterator[dict[str, Any]]:
    """Yield the passwords of each role, newest first, and whether each is due for rotation."""
    for role in (Role.READ, Role.INGEST):
        for at, stored in enumerate(passwords_of(profile, role)):
            set_ms = set_at_ms(stored)
            due = at > 0 or _is_old(set_ms, days)
            yield {"role": role.value, "set_at": from_ms(set_ms), "due": due}


def _keys(keys: Iterable[Key], days: int) -> Iterator[dict[str, Any]]:
    """Yield the valid keys, and whether each is due for rotation."""
    for key in keys:
        if key_state(key, now_ms()) == "holds":
            named = {"id": key.id, "label": key.label}
            yield {**named, "made_at": from_ms(key.made_ms), "due": _is_old(key.made_ms, days)}


def _is_old(at_ms: int, days: int) -> bool:
    return now_ms() - at_ms >= days * DAY_MS


def _lines(stage: Stage) -> Iterator[str]:
    yield stage["stage"]
    for name in _ADDRESSES:
        yield f"  {name.removesuffix('_url'):<9} {stage[name] or 'none'}"
    for feed in stage["feeds"]:
        yield f"  {feed['feed']}"
        if not feed["passwords"] and not feed["keys"]:
            yield "    no password and no key: closed, unless the stage is open"
        for each in feed["passwords"]:
            yield f"    {each['role']} password of {each['set_at']}{_due(each)}"
        for each in feed["keys"]:
            yield f"    key {each['id']} of {each['made_at']}{_due(each)}  {each['label']}".rstrip()
    if "cost" in stage:
        yield from _cost_lines(stage["cost"])


def _cost_lines(cost: dict[str, Any]) -> Iterator[str]:
    if not cost["tagged"]:
        yield f"  cost on {cost['day']}: unknown; Billing does not use the tag {STAGE_TAG} yet"
        return
    yield f"  cost on {cost['day']}: ${cost['dollars']:.2f}"
    for service, dollars in cost["services"].items():
        yield f"    ${dollars:.4f}  {service}"


def _due(each: dict[str, Any]) -> str:
    return ", due to be rotated" if each["due"] else ""
