"""The agent is killed under load in front of a running feed: acknowledged operations are appended
once.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from pathlib import Path

import httpx

from tests.e2e import consumers
from tests.e2e.consumers import BEFORE_THE_FIRST
from tests.unit.agent.processes import Agent, operation
from tidings.server.running import Server

KILLS = 3
ACKED_BEFORE_KILL = 60
SEED = 11


class Producer(threading.Thread):
    """Posts numbered operations one after another; what fails is never sent again."""

    def __init__(self, agent: Agent) -> None:
        super().__init__(daemon=True)
        self._agent = agent
        self.acked: list[str] = []
        self.more = threading.Condition()
        self.sent = 0
        self.stopping = False

    def run(self) -> None:
        while not self.stopping:
            serial, self.sent = str(self.sent), self.sent + 1
            try:
                answer = self._agent.post(operation(serial))
            except httpx.HTTPError:
                continue
            if answer.status_code == 204:
                with self.more:
                    self.acked.append(serial)
                    self.more.notify_all()

    def until_acked(self, count: int) -> None:
        with self.more:
            assert self.more.wait_for(lambda: len(self.acked) >= count, 60)


def test_nothing_acknowledged_is_lost_or_appended_twice(tmp_path: Path) -> None:
    """Killed in the middle of a load, several times; the feed's answers are lost with it."""
    choose = random.Random(SEED)
    with Server() as server, Agent(server.url, tmp_path) as agent:
        producer = Producer(agent)
        producer.start()
        for _ in range(KILLS):
            producer.until_acked(len(producer.acked) + ACKED_BEFORE_KILL + choose.randint(0, 20))
            agent.kill()
            agent.start()
        producer.until_acked(len(producer.acked) + 1)
        producer.stopping = True
        producer.join(60)
        agent.until(lambda status: status["queue_size"] == 0)
        httpx.post(server.url, json={"event": "insert", "type": "end", "id": "end"}, timeout=30)
        log = consumers.log_from(
            server.url, BEFORE_THE_FIRST, lambda heard: heard.data["type"] == "end"
        )

    appended = [heard.data["id"] for heard in log[:-1]]
    assert [serial for serial, times in Counter(appended).items() if times > 1] == []
    assert set(producer.acked) - set(appended) == set()
    assert appended == sorted(appended, key=int)
