"""Who answers a request to our own node."""

from __future__ import annotations

from groupkeeper.coordinator.gateway.own_routes import common_versions


def test_our_own_node_offers_the_versions_that_every_broker_has() -> None:
    assert common_versions([{0: (3, 12), 1: (4, 17), 9: (0, 9)}, {0: (0, 11), 1: (18, 20)}]) == {
        0: (3, 11)
    }
    assert common_versions([]) == {}
