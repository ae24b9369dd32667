"""Alarms: the rule of each metric; nothing is written while all is well."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.unit.core.scene import NOW
from tidings.core import limits
from tidings.core.attention import IN_PAGES, RULES, AlarmRules, Alert, Rule, rules


class RecordingRules:
    """Judges metrics, and collects the counters and the findings."""

    def __init__(self, by: dict[str, Rule] | None = None) -> None:
        self.counted: Counter[str] = Counter()
        self.found: list[Alert] = []
        self.now_ms = NOW
        self.alarm_rules = AlarmRules(
            self._count, self.found.append, lambda: self.now_ms, by or RULES
        )

    def _count(self, metric: str, value: int) -> None:
        self.counted[metric] += value


@pytest.mark.parametrize("metric", RULES)
def test_what_is_above_its_limit_is_told(metric: str) -> None:
    """The finding has the feed and both values; the rule's own metric is counted, too."""
    recording, rule = RecordingRules(), RULES[metric]
    recording.alarm_rules.feed = "main"
    recording.alarm_rules(metric, rule.limit)
    assert recording.found == [] and recording.counted == {metric: rule.limit}
    recording.alarm_rules(metric, rule.limit + 1)
    assert recording.found == [Alert("main", metric, rule.limit + 1, rule.limit)]
    assert recording.counted["Behind"] == int(rule.lasting)
    assert recording.counted["Attention"] == int(not rule.lasting)


def test_what_lingers_is_told_once_a_day() -> None:
    """It is reported once a day for each feed: the alarm ends in between, so that it can report
    other problems.
    """
    recording = RecordingRules()
    for feed in ("main", "other", "main"):
        recording.alarm_rules.feed = feed
        recording.alarm_rules("ConsumersLate", 1)
    recording.alarm_rules("PagesLost", 1)
    recording.alarm_rules("PagesLost", 1)
    assert recording.counted["Attention"] == 2 + 2 and recording.counted["ConsumersLate"] == 3
    recording.now_ms += limits.REMIND_MS - 1
    recording.alarm_rules("ConsumersLate", 1)
    assert recording.counted["Attention"] == 4
    recording.now_ms += 1
    recording.alarm_rules("ConsumersLate", 1)
    assert recording.counted["Attention"] == 5
    assert not any(rule.lingers and rule.lasting for rule in RULES.values())


def test_what_has_no_rule_is_only_counted() -> None:
    """Most metrics say how much there was of something."""
    recording = RecordingRules()
    recording.alarm_rules("OperationsIngested", 10_000_000)
    assert recording.found == [] and recording.counted == {"OperationsIngested": 10_000_000}


def test_a_deployment_says_how_many_pages_it_bears() -> None:
    """The limit holds for every lag in pages; limits for ages are the same everywhere."""
    recording = RecordingRules(rules(10))
    for metric in RULES:
        recording.alarm_rules(metric, 11)
    assert {each.metric for each in recording.found if each.limit == 10} == set(IN_PAGES)
    assert rules(RULES["FollowerLag"].limit) == RULES
