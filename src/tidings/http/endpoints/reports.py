"""The routes that report the rights of a caller (PROTOCOL 10.10), and samples of a feed (9.10)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tidings.core import limits
from tidings.core.auth.guard import PUBLIC, READ_ALL, Role
from tidings.core.errors import Rejected
from tidings.http import wire
from tidings.http.wire import Call, Example, Fields, Ms, Unset

if TYPE_CHECKING:
    from tidings.core.auth.guard import Guard
    from tidings.core.maintenance.history import History

RoleName = Annotated[str, wire.one_of(*(role.value for role in Role))]


class NoHistory(Rejected, code="no_history", status=501):
    """This deployment keeps no history; CloudWatch has the metrics of a stage."""


class Right(Fields, name=""):
    """A role, with the part of the feed to which it is restricted."""

    role: RoleName
    types: list[str] | None
    parents: Annotated[list[str] | None, Example(["customer/ann"])]
    ids: list[str] | Unset | None = wire.UNSET


class Access(Fields):
    principal: Annotated[str | None, Example("3k2m9c0q8xw1")]
    roles: list[Right]


class SampleReport(Fields, name=""):
    ms: Ms
    operations: Annotated[int, Example(120)]
    events: Annotated[int, Example(240)]
    head: Annotated[int, Example(42)]
    lags: Annotated[dict[str, int], Example({"push": 0, "state": 0, "consumer search": 3})]


class SampleList(Fields, name="History"):
    interval_ms: Annotated[int, Example(limits.SWEEP_EVERY_MS)]
    samples: Annotated[list[SampleReport], wire.most(limits.HISTORY_SAMPLES)]


@dataclass(frozen=True)
class FeedReports(wire.Routes, function="consume"):
    """The endpoint of the reports. Without *history*, the deployment keeps no samples."""

    guard: Guard
    history: History | None = None

    @wire.get("/feeds/{feed}/access", PUBLIC, "10.10")
    def get_access(self, call: Call) -> Access:
        """Return the roles that the credential grants."""
        rights = self.guard.rights(call.feed, call.credential)
        principals = {allowed.principal for allowed in rights.values()} - {""}
        return Access(
            principal=min(principals, default=None),
            roles=[
                Right(role=role.value, **{"types": None, "parents": None, **allowed.bound.values()})
                for role, allowed in rights.items()
            ],
        )

    @wire.get("/feeds/{feed}/history", READ_ALL, "9.10", errors=(NoHistory,))
    def get_history(self, call: Call) -> SampleList:
        """Return samples of the last hour."""
        if self.history is None:
            rule = "is kept only by `tidings serve`; CloudWatch has the metrics of a stage"
            raise NoHistory(rule, field="history")
        samples = [SampleReport.copy_of(each) for each in self.history.samples(call.feed)]
        return SampleList(interval_ms=limits.SWEEP_EVERY_MS, samples=samples)
