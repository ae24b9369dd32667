"""What steps stand on: a stage in an account of AWS or on an emulator, and who waits there."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import boto3
from tidings.aws.config import stages
from tidings.aws.config.account import Account
from tidings.aws.config.stages import Addresses, stack_name

from infra import emulator, settings, stage_on_emulator, tidings_cli
from infra.paths import ROOT
from infra.sandbox.steps import REASON_CHARS_MAX, NotSo, Stopped

_NOWHERE = Addresses("", "", "")
_STREAMS_QUOTA = 500  # of functions at once: the suite opens some three streams a second
_LOOK_S = 0.5  # how often a child, a clock and somebody's Ctrl-C are looked at
_STOP_S = 10  # for a child to end by itself


class Place(Protocol):
    """
    Where the stage is. *environment* leads AWS clients of child processes there.

    `prepare` changes an assembly to what can be deployed; `serving` is the deployed stage with all
    that its clients need.
    """

    name: str
    emulated: bool
    account: str
    region: str
    environment: Mapping[str, str]

    def client(self, service: str) -> Any: ...

    def prepare(self, assembly: Path) -> None: ...

    def serving(self, stage: str, assembly: Path) -> AbstractContextManager[Addresses]: ...


class Amazon:
    """The account and Region that the environment's credentials lead to."""

    name = "AWS"
    emulated = False
    environment: Mapping[str, str]

    def __init__(self) -> None:
        """
        Raises:
            BotoCoreError, ClientError: there are no credentials, or no Region.
        """
        # The CDK reads the first of them, boto3 the second one alone.
        named = os.environ.get("AWS_REGION") or boto3.Session().region_name
        self._session = boto3.Session(region_name=named)
        self.account = str(self.client("sts").get_caller_identity()["Account"])
        self.region = str(self.client("cloudformation").meta.region_name)
        self.environment = {"AWS_REGION": self.region, "AWS_DEFAULT_REGION": self.region}

    def client(self, service: str) -> Any:
        made: Any = self._session.client  # its stubs want the name of the service as a literal
        return made(service)

    def prepare(self, assembly: Path) -> None:
        pass

    @contextmanager
    def serving(self, stage: str, assembly: Path) -> Iterator[Addresses]:
        yield stages.addresses(stage, self.client("cloudformation"))


class Emulated:
    """MiniStack, with what has to be put right there (`infra.stage_on_emulator`)."""

    name = f"an emulator ({emulator.PACKAGES[0].replace('==', ' ')})"
    emulated = True
    account, region = emulator.ACCOUNT, emulator.REGION

    def __init__(self, running: emulator.Emulator) -> None:
        self._running = running
        self.environment: Mapping[str, str] = running.environment

    def client(self, service: str) -> Any:
        return self._running.client(service)

    def prepare(self, assembly: Path) -> None:
        for template in assembly.glob("*.template.json"):
            stage_on_emulator.without_the_unknown(template)
        stage_on_emulator.for_this_machine(assembly)

    @contextmanager
    def serving(self, stage: str, assembly: Path) -> Iterator[Addresses]:
        asked = self.client("cloudformation").describe_stacks(StackName=stack_name(stage))
        outputs = {each["OutputKey"]: each["OutputValue"] for each in asked["Stacks"][0]["Outputs"]}
        (described,) = settings.chosen(stage)
        with stage_on_emulator.served(described, outputs, self._running, assembly) as addresses:
            yield addresses


@dataclass(frozen=True, slots=True)
class Options:
    """
    How much is done: *load_s* seconds of load of *rate* operations a second, a backlog that lasts
    *backlog_s*. *subnets* and *security_groups* are where a job of Spark is to reach the feed from.
    """

    load_s: float = 600.0
    rate: float = 20.0
    backlog_s: float = 220.0
    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()


@dataclass
class Ground:
    """
    The stage called *stage* at *place*; *addresses* are there once it is deployed.

    *folder* is for what steps write. *facts* are what one step tells a later one, as JSON has it:
    they outlive this process. *opened* is closed before the stage is taken away.
    """

    stage: str
    expires: str
    place: Place
    folder: Path
    options: Options = field(default_factory=Options)
    facts: dict[str, Any] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)
    addresses: Addresses = _NOWHERE
    opened: ExitStack = field(default_factory=ExitStack)

    def client(self, service: str) -> Any:
        return self.place.client(service)

    def named(self, what: str) -> str:
        """The name of a function of the stage, or of what a step makes beside its stacks."""
        return f"{stack_name(self.stage)}-{what}"

    @property
    def operations_stream(self) -> str:
        """The URL of the event stream."""
        return f"{self.addresses.stream.rstrip('/')}/ops"

    @property
    def streams(self) -> bool:
        """
        Whether many event streams may be opened: each holds a function until its time is over,
        whoever reads it, and a new account has ten.
        """
        if self.place.emulated:
            return True
        return Account(self.client).concurrency().quota >= _STREAMS_QUOTA

    def sleep(self, seconds: float) -> None:
        """
        Raises:
            Stopped: somebody ended the run.
        """
        if self.stop.wait(seconds):
            raise Stopped

    def until(self, holds: Callable[[], Any], limit_s: float, what: str, every_s: float = 2) -> Any:
        """
        What *holds* returns, once that is true.

        Raises:
            NotSo: it was not within *limit_s*.
        """
        deadline = time.monotonic() + limit_s
        while not (found := holds()):
            if time.monotonic() > deadline:
                raise NotSo(f"{what}: not within {limit_s:.0f} s")
            self.sleep(every_s)
        return found

    def tidings(self, *arguments: str, stdin: str = "", fine: tuple[int, ...] = (0,)) -> str:
        """As `run`, of the command `tidings` with *arguments*."""
        return self.run([str(tidings_cli.PROGRAM), *arguments], stdin=stdin, fine=fine)

    def run(self, command: list[str], *, stdin: str = "", fine: tuple[int, ...] = (0,)) -> str:
        """
        What *command* printed, from the root of the repository.

        Raises:
            NotSo: it ended with a code other than *fine*.
            Stopped: somebody ended the run; the command was ended, too.
        """
        child = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | dict(self.place.environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            printed, complained = self._ended(child, stdin)
        finally:
            _end(child)
        if child.returncode not in fine:
            said = (complained.strip() or printed.strip())[-REASON_CHARS_MAX:]
            raise NotSo(f"{' '.join(command[:6])} ended with {child.returncode}: {said}")
        return printed

    def _ended(self, child: subprocess.Popen[str], stdin: str) -> tuple[str, str]:
        given: str | None = stdin
        while True:
            try:
                return child.communicate(given, timeout=_LOOK_S)
            except subprocess.TimeoutExpired:
                given = None  # it has it already
                if self.stop.is_set():
                    raise Stopped from None


def _end(child: subprocess.Popen[str]) -> None:
    """Also where somebody is impatient and interrupts us."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
