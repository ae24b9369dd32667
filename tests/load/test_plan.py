"""The schedule of a load."""

from __future__ import annotations

from tidings.client.produce.post import encode

from bench.loading.plan import Plan


def test_every_operation_is_sent_by_one_producer() -> None:
    """Together the producers send each operation once, and each of them in order."""
    plan = Plan("r", producers=3, rate=10, batch=4, duration_s=5)
    shares = [
        [serial for request in plan.shares(producer) for serial in request] for producer in range(3)
    ]

    assert sorted(serial for share in shares for serial in share) == list(range(plan.total))
    assert all(share == sorted(share) for share in shares)


def test_requests_are_due_at_the_rate() -> None:
    """The operations of a request are due together, a request each batch / rate seconds."""
    plan = Plan("r", rate=10, batch=2, duration_s=1)

    assert [plan.due_s(serial) for serial in range(6)] == [0, 0, 0.2, 0.2, 0.4, 0.4]


def test_an_operation_is_the_same_each_time() -> None:
    """So that what is heard can be compared with what was posted; another seed makes others."""
    one, two = Plan("r"), Plan("r", seed=2)

    assert [one.operation(each) for each in range(50)] == [
        one.operation(each) for each in range(50)
    ]
    assert [one.operation(each) for each in range(50)] != [
        two.operation(each) for each in range(50)
    ]


def test_an_operation_has_the_size_that_was_asked_for() -> None:
    """About, as JSON; one that is asked to be tiny has no padding."""
    sized = len(encode(Plan("0" * 8, size=2_000).operation(123)))

    assert 1_900 < sized < 2_100
    assert len(encode(Plan("0" * 8, size=1).operation(123))) < 150
