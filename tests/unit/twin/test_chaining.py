"""What the options of a host say of chained feeds, and how a twin begins to copy them."""

from __future__ import annotations

import asyncio

import pytest

from tidings.core.model.feeds import DEFAULT_FEED
from tidings.core.replication.source import FallOff, Role
from tidings.server import chain_options
from tidings.server.problems import Problem
from tidings.twin import chaining, environment
from tidings.twin.lambdas.runtime_api import Answer
from tidings.twin.options import Options

URL = "http://127.0.0.1:8042"


def test_one_option_chains_a_feed() -> None:
    """Of the name that the address says; without one it is the default feed."""
    assert chain_options.chained(Options(chain_from=URL)) == {DEFAULT_FEED: f"{URL}/feeds/main"}
    orders = Options(chain_from=f"{URL}/feeds/orders/")
    assert chain_options.chained(orders) == {"orders": f"{URL}/feeds/orders"}
    assert environment.parsed(orders).feeds == {"main", "orders"}
    assert set(environment.parsed(orders).sources) == {"orders"}


def test_D1_local_feeds_stay_beside_chained_ones() -> None:
    """Each under its own name; what is said of the source is said of all."""
    options = Options(
        feeds="main,mine",
        chains=(f"theirs={URL}", f"more={URL}/feeds/x"),
        source=("types=a,b", "fall_off=wait", "restart_offset=3"),
    )
    environment.check(options)
    sources = environment.parsed(options).sources
    assert environment.parsed(options).feeds == {"main", "mine", "theirs", "more"}
    assert {feed: source.url for feed, source in sources.items()} == {
        "theirs": f"{URL}/feeds/main",
        "more": f"{URL}/feeds/x",
    }
    source = sources["more"]
    assert source.selection.filter.types == frozenset({"a", "b"})
    assert (source.fall_off, source.restart_offset) == (FallOff.WAIT, 3)


def test_an_elected_twin_is_at_the_address_where_it_listens() -> None:
    """So that the common case needs no more than the role and the table."""
    options = Options(
        port=8052, chain_from=URL, source=("role=elected",), coordinator="dynamodb://seats"
    )
    (source,) = environment.parsed(options).sources.values()
    assert (source.role, source.address) == (Role.ELECTED, "http://127.0.0.1:8052/feeds/main")
    assert environment.parsed(options).coordinator is not None


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (Options(chains=("theirs",)), "must be FEED=URL"),
        (Options(source=("types=a",)), "needs --chain-from or --chain"),
        (Options(chain_from=URL, source=("types",)), "must be NAME=VALUE"),
        (Options(chain_from=URL, source=("leader=x",)), "leader: must be https://HOST"),
        (Options(chain_from=URL, source=("color=red",)), "color: is not known here"),
        (Options(chain_from="ftp://x"), "url: must be https://HOST"),
    ],
)
def test_what_breaks_a_rule_does_not_start(options: Options, told: str) -> None:
    """One sentence says why."""
    with pytest.raises(Problem, match=told):
        environment.check(options)


def test_every_copy_begins_at_once_and_has_a_worker() -> None:
    """One that could not start is started again; more bells than copies find a worker too."""
    asked: list[tuple[str, bytes]] = []

    async def invoke(name: str, payload: bytes) -> Answer:
        asked.append((name, payload))
        return Answer(b"", "Runtime.ExitError" if len(asked) == 1 else None)

    with asyncio.Runner() as runner:
        runner.run(chaining.begin("main", invoke))
    assert asked == [("follow-relay", b'{"ring": "main"}')] * 2
    assert chaining.workers({"main", "orders"}) == {"follow-relay": 3}
