"""The topics of gateway mode."""

from __future__ import annotations

from structlog.testing import capture_logs

from groupkeeper.coordinator.gateway.gateway_topics import GatewayTopics
from tests.helpers.runtime.coordinator import a_coordinator
from tests.helpers.runtime.virtual_loop import virtual_time
from tests.helpers.storage.faulty_storage import FaultyStorage


@virtual_time
async def test_a_topic_of_the_upstream_is_not_missed_in_the_config() -> None:
    """The advice of that line is to delete the topic, and here that deletes its records."""
    storage = FaultyStorage()
    async with a_coordinator(storage):
        pass
    with capture_logs() as lines:
        async with a_coordinator(storage, GatewayTopics()) as world:
            assert world.coordinator.topics is not None
            assert set(world.coordinator.topics.image.by_name) == {"orders", "payments"}
    assert [each for each in lines if each["event"].startswith("topic_")] == []
