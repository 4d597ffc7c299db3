"""The rest of a large step: it comes back in a later turn of the loop."""

from __future__ import annotations

from groupkeeper.coordinator.core.cluster.image import TopicImage
from groupkeeper.coordinator.core.consumer.follow_work import FollowWork
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.coordinator.runtime.workshop import Workshop
from tests.helpers.runtime.virtual_loop import turns, virtual_time

REST = FollowWork(group_id="g", epoch=2)


@virtual_time
async def test_the_rest_of_a_step_comes_in_a_later_turn():
    workshop, outcomes = Workshop(CoordinatorConfig(), TopicImage.of), []
    workshop.begin(REST, outcomes.append)
    assert outcomes == []
    await turns()
    assert outcomes == [None]


@virtual_time
async def test_the_rest_of_a_step_does_not_come_after_a_stop():
    workshop, outcomes = Workshop(CoordinatorConfig(), TopicImage.of), []
    workshop.begin(REST, outcomes.append)
    assert workshop.stop() == []
    await turns(2)
    assert outcomes == []
