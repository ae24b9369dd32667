"""Operators steer chained feeds, and a feed after its upstream has moved on."""

from __future__ import annotations

import subprocess

from tests.compat.chained.conftest import Chain
from tests.compat.chained.place import Place, arrived, until
from tests.unit.client import command


def tidings(place: Place, *words: str) -> subprocess.CompletedProcess[str]:
    return command.tidings("relays", *words, "--url", place.url)


def left_behind(chain: Chain, name: str) -> None:
    """Copy two pages, then post and trim on the master while the copy is paused."""
    chain.master.post(name, "a", "b")
    chain.master.post(name, "gone")
    arrived(chain.far, name, 2)
    assert chain.far.act(name, "pause").status_code == 200
    chain.master.post(name, "gone", event="delete")
    chain.master.post(name, "a")
    chain.master.post(name, "c")
    until(lambda: len(chain.master.state(name)) == 3)
    chain.master.raise_floor(name, 5)
    assert chain.far.act(name, "resume").status_code == 200


def test_D22_D23_D24_a_feed_is_steered_from_the_command_line(chain: Chain) -> None:
    """Paused, resumed, shut down and started, from its saved place, without loss or repeat."""
    name, here = "steered", chain.middle
    chain.master.post(name, "a")
    arrived(here, name, 1)
    assert tidings(here, "pause", name).stdout == "steered is paused at page 1\n"
    chain.master.post(name, "b")
    assert tidings(here, "resume", name).returncode == 0
    arrived(here, name, 2)
    assert tidings(here, "shutdown", name).stdout == "steered is shutdown at page 2\n"
    assert tidings(here, "resume", name).returncode == 1
    assert "steered" in tidings(here, "list").stdout
    assert tidings(here, "list", "--check", "--json").returncode == 1
    chain.master.post(name, "c")
    assert tidings(here, "start", name).returncode == 0
    arrived(here, name, 3)
    assert here.log(name) == chain.master.log(name)
    assert here.relay(name)["repeated"] == 0


def test_D16_waiting_is_loud_and_ends_with_a_reset(chain: Chain) -> None:
    """Nothing is skipped; after a reset everything that there is has been copied."""
    left_behind(chain, "wait")
    until(lambda: chain.far.relay("wait")["status"] == "fell-off")
    found = chain.far.relay("wait")
    assert "page 5" in found["error"] and found["page"] == 2
    told = tidings(chain.far, "reset", "wait", "--to", "everything", "--why", "a test")
    assert told.returncode == 0, told.stderr
    arrived(chain.far, "wait", 5)
    until(lambda: chain.far.state("wait") == chain.master.state("wait"))


def test_D16_bootstrapping_tells_consumers_everything(chain: Chain) -> None:
    """The state is the upstream's, and a client with an old cursor receives the deletions."""
    with chain.far.listening("boot", "0") as listener:
        assert listener.next().name == "reset"
    left_behind(chain, "boot")
    arrived(chain.far, "boot", 5)
    until(lambda: chain.far.state("boot") == chain.master.state("boot"))
    assert sorted(chain.far.state("boot")) == ["video/a", "video/b", "video/c"]
    assert chain.far.relay("boot")["status"] == "running"
    chain.master.post("boot", "d")
    arrived(chain.far, "boot", 6)
    assert chain.far.log("boot") == chain.master.log("boot")[-len(chain.far.log("boot")) :]


def test_D20_latest_forgets_what_was_here(chain: Chain) -> None:
    """And continues with new events."""
    left_behind(chain, "latest")
    until(lambda: chain.far.relay("latest")["page"] >= 5)
    chain.master.post("latest", "d")
    arrived(chain.far, "latest", 6)
    until(lambda: sorted(chain.far.state("latest")) == ["video/d"])
    assert chain.far.log("latest") == chain.master.log("latest")[-1:]
