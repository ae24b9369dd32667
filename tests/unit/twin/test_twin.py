"""The twin as a whole: one command, real processes, DynamoDB Local."""

import functools
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from bench.loading import machine
from tests.twin import Twin, store
from tidings.aws.config import deployment, settings


def until(condition: Callable[[], Any], timeout_s: float = 60) -> Any:
    """Return the first true value of *condition*."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return value


def post(twin: Twin, **order: object) -> httpx.Response:
    return httpx.post(twin.url, json=order, trust_env=False, timeout=60)


engine = functools.cache(store.tables_client)


def row(twin: Twin, table: str, **key: str) -> Any:
    found = engine(twin.dynamodb_url).get_item(
        TableName=store.table_name(table), Key={k: {"S": v} for k, v in key.items()}
    )
    return found.get("Item")


def ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # If its parent was killed, a child waits for its new parent to take its exit code.
    return Path(f"/proc/{pid}/stat").exists() and " Z " in Path(f"/proc/{pid}/stat").read_text()


def test_the_tables_are_those_of_the_blueprint(twin: Twin) -> None:
    """Keys, on-demand billing, TTL and streams of keys only."""
    client = engine(twin.dynamodb_url)
    for table in deployment.TABLES:
        name = store.table_name(table.name)
        made = client.describe_table(TableName=name)["Table"]
        ttl = client.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
        keys = [key["AttributeName"] for key in made["KeySchema"]]
        types = {a["AttributeName"]: a["AttributeType"] for a in made["AttributeDefinitions"]}

        assert keys == [table.partition_key, table.sort_key[0]]
        assert types == {table.partition_key: "S", table.sort_key[0]: table.sort_key[1]}
        assert made["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
        assert ttl.get("AttributeName") == table.ttl_attribute
        assert ("LatestStreamArn" in made) == table.stream
        if table.stream:
            assert made["StreamSpecification"]["StreamViewType"] == "KEYS_ONLY"


def test_a_function_has_the_environment_of_the_settings(twin: Twin) -> None:
    """Every setting with a value is there, and the function parses them."""
    environment = json.loads(post(twin, do="environment").text)
    parsed = settings.Settings.read(environment)

    assert parsed.stage == "local"
    assert parsed.function_prefix == "tidings-local-"
    assert parsed.log_table == "tidings-local-log"
    assert environment["AWS_LAMBDA_FUNCTION_NAME"] == "tidings-local-ingest"
    assert environment["POWERTOOLS_SERVICE_NAME"] == "tidings-local"
    assert environment["AWS_ENDPOINT_URL_DYNAMODB"] == twin.dynamodb_url
    assert "HOME" not in environment


def test_a_write_to_the_log_wakes_both_followers(twin: Twin) -> None:
    """The stream invokes each function of its own mapping with the record."""
    post(twin, do="append", page=77)

    assert until(lambda: row(twin, "state", bucket="state", key="77"))
    assert until(lambda: row(twin, "state", bucket="push", key="77"))


def test_a_function_answers_on_the_socket_and_wakes_another(twin: Twin) -> None:
    """`@connections` and the Lambda API are where the functions look for them."""
    with connect(twin.ws_url) as client:
        client.send('{"hello":1}')
        event = json.loads(client.recv(timeout=60))
        client.send('{"do":"ring"}')

        assert event["body"] == '{"hello":1}'
        assert until(lambda: row(twin, "state", bucket="push", key="ring main"))
    id_ = event["requestContext"]["connectionId"]

    assert until(lambda: row(twin, "connections", kind="left", name=id_))["code"] == {"N": "1000"}


def test_a_stream_arrives_block_by_block(twin: Twin) -> None:
    """The first block arrives before the last one is made; the event has the path's time limit."""
    with httpx.stream("GET", twin.url + "ops?types=a", trust_env=False, timeout=60) as response:
        arrivals = [(time.monotonic(), line) for line in response.iter_lines() if line]
    first = json.loads(arrivals[0][1].removeprefix("data: "))
    context = json.loads(first["headers"]["x-amzn-lambda-context"])

    assert response.headers["content-type"] == "text/event-stream"
    assert len(response.headers.get_list("date")) == 1
    assert [line for _, line in arrivals[1:]] == ["data: 0", "data: 1", "data: end"]
    assert arrivals[-1][0] - arrivals[0][0] > 0.05
    assert first["query"] == "types=a"
    assert context["deadline"] > time.time() * 1000 + 800_000


def test_a_client_that_leaves_a_stream_does_not_stop_others(twin: Twin) -> None:
    """The next stream is served by the same process."""
    with httpx.stream("GET", twin.url + "?endless", trust_env=False, timeout=60) as response:
        next(response.iter_lines())
    again = httpx.get(twin.url, trust_env=False, timeout=60)

    assert again.text.endswith("data: end\n\n")


def test_a_crash_in_a_function_leaves_the_twin_serving(twin: Twin) -> None:
    """A 500 for the request, then everything as before."""
    assert post(twin, do="exit").status_code == 500
    assert post(twin, do="raise").status_code == 500
    assert post(twin).status_code == 200


@pytest.mark.java
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_everything_it_started(
    number: signal.Signals, functions: Path
) -> None:
    """Exit code 0 soon, even with a stream and a socket open, which last for minutes."""
    with Twin("--functions", str(functions)) as twin:
        post(twin)
        with (
            connect(twin.ws_url),
            httpx.stream("GET", twin.url + "?endless", trust_env=False, timeout=60) as response,
        ):
            next(response.iter_lines())
            started = machine.family(twin.pid)
            began = time.monotonic()
            os.kill(twin.pid, number)
            code = twin.wait()

    assert code == 0
    assert time.monotonic() - began < 60
    assert len(started) >= 4
    assert [pid for pid in started if not ended(pid)] == []


@pytest.mark.java
def test_a_killed_twin_leaves_no_process_and_starts_again_on_its_data(
    functions: Path, tmp_path: Path
) -> None:
    """The log is still there and the followers' leases are free."""
    with Twin("--functions", str(functions), data=tmp_path) as twin:
        post(twin, do="append", page=5)
        until(lambda: row(twin, "state", bucket="state", key="5"))
        item: Any = {
            "kind": {"S": "follower#main"},
            "name": {"S": "state"},
            "owner": {"S": "somebody"},
            "lease_until": {"N": "99999999999999"},
            "fence": {"N": "3"},
            "page": {"N": "9"},
        }
        client = engine(twin.dynamodb_url)
        client.put_item(TableName=store.table_name("control"), Item=item)
        started = machine.family(twin.pid)
        twin.kill()
        until(lambda: all(ended(pid) for pid in started))
        twin.start()
        follower = row(twin, "control", kind="follower#main", name="state")

        assert row(twin, "state", bucket="state", key="5")
        assert follower == {
            "kind": {"S": "follower#main"},
            "name": {"S": "state"},
            "fence": {"N": "3"},
            "page": {"N": "9"},
        }
