"""A black-box test: it knows docs/PROTOCOL.md, the command line and nothing of the code.

Producers and consumers of every kind use a server, and a copy of it, while faults happen. Then
every promise is checked against what was acknowledged.

    python -m tests.oracle --seconds 120 --seed 1
    python -m tests.oracle --seconds 450 --kills --producers 16
"""

from __future__ import annotations

import argparse
import collections
import random
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx

from tests.oracle import checks
from tests.oracle.consumers import KINDS, Reader, Worker
from tests.oracle.history import History
from tests.oracle.producers import TYPES, Producer
from tests.oracle.servers import Machine

_PRODUCERS = 6
_CALM_OF_KILLS_S = (1.0, 3.0)
_CALM_S = (1.0, 4.0)  # between two faults
_SETTLED_S = 180.0  # for consumers to reach the end after the last fault
_PAUSE_S = 3.0  # of a suspended process
_STEPS_S = (-3600, -30, 30, 3600)
# Python's switch interval. With its default of 5 ms, a consumer waits for all producers after each
# read and each write, and is at the end only long after the load.
_SWITCH_S = 0.0005


class Run:
    """One run. *url* is where clients go: the master, or the copy once that was promoted.

    If *kills* is True, the only fault is `kill -9` of the master.
    """

    def __init__(
        self, folder: Path, seed: int, *, producers: int = _PRODUCERS, kills: bool = False
    ) -> None:
        self._kills = kills
        self.history = History()
        self.entries = 0
        self.faults: collections.Counter[str] = collections.Counter()
        self._folder, self._random = folder, random.Random(seed)
        # A copy that was reset begins with a copy of the state, and proves less when promoted.
        self._restores = not kills and self._random.random() < 0.5
        self.master = Machine(folder / "master")
        self.master.start()
        upstream = f"{self.master.url}/feeds/main"
        self.copy = Machine(folder / "copy", "--chain-from", upstream)
        self.copy.start()
        self.main = self.master
        self._posting, self._reading = threading.Event(), threading.Event()
        self.readers: list[Reader] = [
            kind(self._url, self.history, self._reading.is_set) for kind in KINDS
        ]
        self.readers += [
            kind(self._url, self.history, self._reading.is_set, TYPES[:1]) for kind in KINDS[:3]
        ]
        self._producing = [
            threading.Thread(target=Producer(number, self._url, self.history, self._posting.is_set))
            for number in range(producers)
        ]
        self._consuming = [threading.Thread(target=each) for each in self.readers]

    def _url(self) -> str:
        return self.main.url

    def __call__(self, seconds: float) -> None:
        for thread in (*self._producing, *self._consuming):
            thread.start()
        ends = time.monotonic() + seconds
        promotes = time.monotonic() + seconds * self._random.uniform(0.6, 0.8)
        is_promoted = self._kills
        while time.monotonic() < ends:
            time.sleep(self._random.uniform(*(_CALM_OF_KILLS_S if self._kills else _CALM_S)))
            if time.monotonic() > promotes and not (is_promoted or self._restores):
                is_promoted = True
                self._promote()
            else:
                self._fault()
        self._posting.set()
        for thread in self._producing:
            thread.join()
        self._check()
        self._reading.set()
        for machine in (self.master, self.copy):
            machine.send(signal.SIGCONT)
        self.main.end()  # ends all connections
        for thread in self._consuming:
            thread.join()
        if found := self.main.verify():
            self.history.violated(found)

    def close(self) -> None:
        self._posting.set()
        self._reading.set()
        self.master.close()
        self.copy.close()

    def _fault(self) -> None:
        if self._kills:
            self.faults["kill"] += 1
            self._kill(self.master)
            return
        machine = self._random.choice((self.main, self.main, self.copy))
        faults = [self._kill, self._stop, self._pause, self._restore, self._step]
        faults += [self._fill] * machine.can_fill
        fault = self._random.choice(faults)
        if fault == self._restore and not (self._restores and machine is self.master):
            fault = self._kill
        self.faults[fault.__name__.strip("_")] += 1
        fault(machine)

    def _kill(self, machine: Machine) -> None:
        machine.end(signal.SIGKILL)
        time.sleep(self._random.uniform(0, 1))
        machine.start()

    def _stop(self, machine: Machine) -> None:
        machine.end(signal.SIGTERM)
        machine.start()

    def _pause(self, machine: Machine) -> None:
        machine.send(signal.SIGSTOP)
        time.sleep(_PAUSE_S)
        machine.send(signal.SIGCONT)

    def _fill(self, machine: Machine) -> None:
        with machine.full():
            time.sleep(1)
            if self._random.random() < 0.5:
                machine.end(signal.SIGKILL)
        if not machine.answers():
            machine.start()

    def _step(self, machine: Machine) -> None:
        machine.step(self._random.choice(_STEPS_S))

    def _restore(self, machine: Machine) -> None:
        """Go back to a backup that is some seconds old."""
        began_s = time.monotonic()
        backup = self._folder / f"backup-{began_s:.0f}.db"
        machine.backup(backup)
        time.sleep(self._random.uniform(0, 3))
        machine.restore(backup, lambda: self.history.restored(began_s))
        if self.main is self.master:  # the copy has pages that its upstream lost
            self._until_copy("other-log", "retrying", "running")
            relay = f"{self.copy.url}/feeds/main/relay"
            httpx.post(f"{relay}/reset", json={"to": "everything", "why": "restored"}, timeout=30)

    def _until_copy(self, *statuses: str) -> None:
        deadline = time.monotonic() + _SETTLED_S
        while time.monotonic() < deadline:
            relay = httpx.get(f"{self.copy.url}/feeds/main/relay", timeout=30).json()
            if relay.get("status") in statuses:
                return
            time.sleep(0.2)
        self.history.violated(f"16.9 the copy is not {statuses}: {relay}")

    def _promote(self) -> None:
        """Hand the producers to the copy (16.13): nothing is lost."""
        self.faults["promote"] += 1
        relay = "feeds/main/relay"
        yielded = httpx.post(
            f"{self.master.url}/{relay}/yield",
            json={"to": f"{self.copy.url}/feeds/main"},
            timeout=30,
        )
        answer = yielded
        deadline = time.monotonic() + _SETTLED_S
        while yielded.is_success and time.monotonic() < deadline:
            answer = httpx.post(f"{self.copy.url}/{relay}/promote", json={}, timeout=30)
            if answer.is_success:
                self.main = self.copy
                self.master.end()
                return
            time.sleep(0.2)
        self.history.violated(f"16.13 not promoted: {yielded.text} {answer.text}")

    def _check(self) -> None:
        log = checks.read_log(self.main.url)
        deadline = time.monotonic() + _SETTLED_S
        waiting = list(self.readers)
        while waiting and time.monotonic() < deadline:
            waiting = [each for each in waiting if each.reached < _end(each, log)]
            time.sleep(0.2)
        for each in waiting:
            self.history.violated(
                f"2.1 {each.name} {each.types} is at {each.reached}: {each.describe()}"
            )
        checks.check_acknowledged(log, self.history)
        checks.check_order(log, self.history)
        checks.check_state(self.main.url, log, self.history)
        for each in self.readers:
            if not (isinstance(each, Worker) and self.faults["restore"]):
                checks.check_reader(each, log, self.history)
        status = httpx.get(f"{self.main.url}/status", timeout=30).json()
        if status["status"] != "OK":
            self.history.violated(f"9.3 {status}")
        self.entries = len(log)


def _end(reader: Reader, log: list[checks.Entry]) -> tuple[int, int]:
    matching = (
        each.place
        for each in reversed(log)
        if not reader.types or each.data["type"] in reader.types
    )
    return next(matching, (0, -1))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="of faults (default: 120)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--producers", type=int, default=_PRODUCERS)
    parser.add_argument("--kills", action="store_true", help="only kill -9 of the master")
    options = parser.parse_args()
    sys.setswitchinterval(_SWITCH_S)
    _say(f"seed {options.seed}, {options.seconds:.0f} s of faults")
    with tempfile.TemporaryDirectory(prefix="tidings-oracle-") as folder:
        run = Run(Path(folder), options.seed, producers=options.producers, kills=options.kills)
        try:
            run(options.seconds)
        except BaseException:
            _say(f"{run.master.output()}\n--\n{run.copy.output()}")
            raise
        finally:
            run.close()
    resets = {f"{each.name}{each.types}": each.resets for each in run.readers}
    _say(f"faults {dict(run.faults)}, resets {resets}")
    _say(f"{run.history.operations_acked} operations acknowledged, {run.entries} in the log")
    for violation in run.history.violations[:20]:
        _say(f"VIOLATED {violation[:600]}")
    return 1 if run.history.violations else 0


if __name__ == "__main__":
    sys.exit(main())
