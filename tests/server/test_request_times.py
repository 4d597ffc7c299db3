"""How long requests took, by API: from the beginning of each to its reply."""

from __future__ import annotations

from typing import Any

import pytest

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.membership import JoinGroupResult
from groupkeeper.coordinator.core.requests.offsets import OffsetCommitResult
from groupkeeper.coordinator.runtime.stats import Histogram
from groupkeeper.coordinator.server.limits import ServerLimits
from groupkeeper.coordinator.server.server import KafkaServer
from groupkeeper.coordinator.server.watch import CallbackWatch
from groupkeeper.protocol.versions import ApiKey
from tests.helpers.runtime.virtual_loop import turns
from tests.helpers.wire.connections import Peer, commit, fake, heartbeat, join
from tests.helpers.wire.handling import make_services


class Timed:
    """A server whose clock the test turns; a heartbeat is answered in ``takes_s``."""

    def __init__(self, *, answers: bool = True) -> None:
        self.now_s = 100.0
        self.takes_s = 0.0
        watch = CallbackWatch(read_s=lambda: self.now_s)
        services = make_services(self._answer if answers else None)
        self.server = KafkaServer(services, ServerLimits(), watch=watch)
        self.peer = Peer(self.server)

    def _answer(self, _: Any) -> ErrorCode:
        self.now_s += self.takes_s
        return ErrorCode.NONE

    def times(self, key: ApiKey) -> Histogram:
        return self.server.stats.request_times()[key]

    def buckets(self, key: ApiKey) -> dict[float, int]:
        found = self.times(key)
        return {b: n for b, n in zip(found.bounds, found.counts, strict=False) if n}


async def test_what_is_answered_at_once_is_timed_to_its_reply() -> None:
    timed = Timed()
    for took_s in (0.0001, 0.0002, 0.04):
        timed.takes_s = took_s
        timed.peer.send(heartbeat(1))
    assert timed.buckets(ApiKey.HEARTBEAT) == {0.0005: 2, 0.05: 1}
    assert timed.times(ApiKey.HEARTBEAT).total == pytest.approx(0.0403)


async def test_each_of_several_requests_at_once_has_its_own_time() -> None:
    timed = Timed()
    timed.takes_s = 0.02
    timed.peer.send(heartbeat(1), heartbeat(2), heartbeat(3))
    await turns(5)
    assert timed.buckets(ApiKey.HEARTBEAT) == {0.025: 3}
    assert timed.times(ApiKey.HEARTBEAT).total == pytest.approx(0.06)


@pytest.mark.parametrize(
    ("key", "frame", "answer"),
    [
        (ApiKey.JOIN_GROUP, join(1), JoinGroupResult(ErrorCode.NOT_COORDINATOR, "m")),
        (ApiKey.OFFSET_COMMIT, commit(1), OffsetCommitResult(ErrorCode.NONE)),
    ],
)
async def test_what_waits_is_timed_until_it_is_answered(
    key: ApiKey, frame: bytes, answer: Any
) -> None:
    timed = Timed(answers=False)
    timed.peer.send(frame)
    assert timed.server.stats.request_times() == {}
    timed.now_s += 42.0
    fake(timed.server).tickets[-1].resolve(answer)
    assert timed.buckets(key) == {60.0: 1}
    assert timed.times(key).total == pytest.approx(42.0)


async def test_every_request_that_is_counted_is_in_its_histogram() -> None:
    timed = Timed()
    for number in range(20):
        timed.takes_s = 0.0003 * number
        timed.peer.send(heartbeat(number))
    await turns(25)
    counted = sum(timed.server.stats.requests.values())
    assert sum(timed.times(ApiKey.HEARTBEAT).counts) == counted == 20
