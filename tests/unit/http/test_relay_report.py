"""The declared fields of a chained feed are those that the core reports."""

from __future__ import annotations

from tests.unit.core.replication.relay_scene import Chain, Cluster, chained
from tests.unit.core.scene import FEED
from tidings.core.replication.relay import Copy
from tidings.http.endpoints.replication import RelayReport


def test_no_field_of_a_chained_feed_is_left_out() -> None:
    """A field that is not declared would not be sent."""
    copying = chained()
    copying.node.note(failures=3, attempt_ms=5_000, error="it broke", copy=Copy(7, bucket=16))
    yielded = chained().master
    yielded.act("yield", to="https://other.example/feeds/main")
    for node in (Chain().node, chained().node, copying.node, yielded, Cluster(2).nodes[0]):
        document = node.control.reporter.document(FEED)
        assert RelayReport(**document).document() == document
