"""The metrics of a stage for its alarms, and no others unless they are requested."""

from __future__ import annotations

from typing import Any

import pytest

from functions.ingest.handler import handle as ingest
from functions.sweep.handler import handle as sweep
from tests.functions.cloud import Cloud, event, lines_of, log_here, restart
from tidings.aws.config import settings
from tidings.http.settings import WrongSetting


def _metrics(lines: list[dict[str, Any]]) -> set[str]:
    written = [each["_aws"]["CloudWatchMetrics"] for each in lines if "_aws" in each]
    return {metric["Name"] for all_ in written for one in all_ for metric in one["Metrics"]}


def _post_without_follower(monkeypatch: pytest.MonkeyPatch, metrics: str) -> None:
    """Post three pages without a follower, in a stage that tolerates two."""
    monkeypatch.setenv("TIDINGS_METRICS", metrics)
    monkeypatch.setenv("TIDINGS_LAG_PAGES", "2")
    restart()
    log_here()
    for _ in range(3):
        ingest(event("http_post"), None)
    sweep({}, None)


def test_only_what_alarms_look_at_is_written(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the line that says what it is about: feed, figure, limit."""
    _post_without_follower(monkeypatch, "alarms")
    lines = lines_of(capsys)
    assert _metrics(lines) == {"Behind"}
    told = [each for each in lines if each.get("message") == "metric above its limit"]
    assert [(each["feed"], each["metric"], each["value"], each["limit"]) for each in told] == [
        ("main", "FollowerLag", 3, 2)
    ] * 2
    assert {each["level"] for each in told} == {"WARNING"}


def test_a_stage_may_write_them_all(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """But none for a zero."""
    _post_without_follower(monkeypatch, "all")
    found = _metrics(lines_of(capsys)) - {"FollowerAge"}  # which a slow machine has, in seconds
    assert found == {"OperationsIngested", "FollowerLag", "Behind"}


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TIDINGS_METRICS", "some"),
        ("TIDINGS_LAG_PAGES", "0"),
        ("TIDINGS_ARCHIVE_SECONDS", "86401"),
        ("TIDINGS_ARCHIVE_SECONDS", "-1"),
        ("TIDINGS_TRACES", "some"),
        ("TIDINGS_LATE_SECONDS", "-1"),
        ("TIDINGS_STREAM_SECONDS", "59"),
        ("TIDINGS_STREAM_SECONDS", "841"),
        ("TIDINGS_STREAM_SECONDS", "2m"),
    ],
)
def test_a_setting_that_breaks_its_rule_is_refused(variable: str, value: str) -> None:
    """By name, before anything runs with it."""
    given = {each.variable: "x" for each in settings.SETTINGS if each.default is None}
    with pytest.raises(WrongSetting, match=variable):
        settings.Settings.read({**given, variable: value})
    parsed = settings.Settings.read(given)
    assert (parsed.archive_wait_ms, parsed.traces, parsed.late_ms) == (900_000, "asked", 10_000)
