"""What librdkafka does in a consumer group when an answer is late or lost.

Both are librdkafka's own doing, and Kafka answers as we do. docs/use/consumer-protocol.md warns of
the first; the judge of the long tests (``heartbeat_tape``) allows the second.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from groupkeeper import read_events
from tests.helpers.clients.heartbeat_tape import (
    HEARTBEAT,
    HEARTBEAT_KEY,
    Heartbeat,
    Ownership,
    heartbeats,
    removals,
)
from tests.helpers.daemon.daemon import free_port
from tests.helpers.daemon.servers import Groupkeeper
from tests.helpers.wire.raw_client import RawClient, decode_response
from tests.helpers.wire.recording_proxy import CUT, Frame, RecordingProxy

pytestmark = pytest.mark.clients_long

TOPIC, PARTITIONS = "orders", 12
HEARTBEAT_MS = 2_000
LIMIT_S = 60


class Site:
    """A member of librdkafka, which the test polls, and a member that the test plays."""

    def __init__(self, directory: Path, max_poll_interval_ms: int) -> None:
        self.advertised_port = free_port()
        self.server = Groupkeeper(
            directory,
            topics={TOPIC: PARTITIONS},
            settings={
                "kafka.advertised": f"127.0.0.1:{self.advertised_port}",
                "group.consumer_heartbeat_interval_ms": HEARTBEAT_MS,
                "group.consumer_min_heartbeat_interval_ms": HEARTBEAT_MS,
                "group.consumer_assignment_interval_ms": 0,
            },
        )
        self.server.start()
        self.raw = RawClient(self.server.port)
        (topic,) = self.raw.call("metadata", 12, topics=None)["topics"]
        self.topics = {topic["topic_id"]: TOPIC}
        self.proxy = RecordingProxy(self.advertised_port, self.server.port, only={HEARTBEAT_KEY})
        self.callbacks: list[tuple[int, str, set[int]]] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": f"127.0.0.1:{self.advertised_port}",
                "client.id": "a",
                "group.id": "g",
                "group.protocol": "consumer",
                "enable.auto.commit": False,
                "max.poll.interval.ms": max_poll_interval_ms,
                "log_level": 0,
            }
        )
        self.consumer.subscribe(
            [TOPIC],
            on_assign=self._called("assigned"),
            on_revoke=self._called("revoked"),
            on_lost=self._called("lost"),
        )

    def _called(self, what: str) -> Any:
        def callback(_: Consumer, partitions: list[TopicPartition]) -> None:
            self.callbacks.append((time.time_ns(), what, {p.partition for p in partitions}))

        return callback

    def stop(self) -> None:
        self.proxy.hold = lambda _: 0
        self.consumer.close()
        self.raw.close()
        self.proxy.stop()
        self.server.stop()

    def told(self) -> list[Heartbeat]:
        return list(heartbeats(list(self.proxy.frames), self.topics))

    def other(self, member_id: str, epoch: int, **values: Any) -> dict[str, Any]:
        """A heartbeat of a member that the test plays."""
        return self.raw.call(
            HEARTBEAT, 1, group_id="g", member_id=member_id, member_epoch=epoch, **values
        )

    def other_joins(self, member_id: str) -> dict[str, Any]:
        return self.other(
            member_id,
            0,
            rebalance_timeout=60_000,
            subscribed_topic_names=(TOPIC,),
            topic_partitions=(),
        )

    def poll_until(self, ready: Any, what: str) -> None:
        give_up = time.monotonic() + LIMIT_S
        while not ready():
            assert time.monotonic() < give_up, f"never came: {what}\n{self.callbacks}"
            self.consumer.poll(0.05)

    def held(self) -> set[int]:
        """The partitions of the consumer, by its callbacks."""
        held: set[int] = set()
        for _, what, numbers in self.callbacks:
            held = held | numbers if what == "assigned" else held - numbers
        return held


@pytest.fixture(params=[300_000])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """The parameter is how long the member may take to give up partitions."""
    site = Site(tmp_path / "server", request.param)
    yield site
    site.stop()


def numbers_in(answer: dict[str, Any]) -> set[int]:
    """The partitions in an answer."""
    assert answer["error_code"] == 0, answer
    return {
        n
        for t in (answer["assignment"] or {"topic_partitions": []})["topic_partitions"]
        for n in t["partitions"]
    }


@pytest.mark.parametrize("site", [6_000], indirect=True)
def test_a_member_that_gets_an_answer_too_late_gives_up_nothing_and_is_evicted(site: Site) -> None:
    """It waits for an answer only for the heartbeat interval. Its next heartbeats do not ask for
    the assignment, so it never learns what it has to give up.
    """
    site.poll_until(lambda: len(site.held()) == PARTITIONS, "it has all")
    late = threading.Event()

    def hold(frame: Frame) -> float:
        """Hold the answer that takes partitions away."""
        if late.is_set() or frame.direction == "request":
            return 0
        if decode_response(HEARTBEAT, frame.api_version, frame.data)[1]["assignment"] is None:
            return 0
        late.set()
        return 2 * HEARTBEAT_MS / 1000

    site.proxy.hold = hold
    assert site.other_joins("b")["error_code"] == 0
    site.poll_until(lambda: any(w == "lost" for _, w, _ in site.callbacks), "it was evicted")

    evicted = [
        e
        for e in read_events(site.server.directory / "groupkeeper.db")
        if e["kind"] == "member_evicted"
    ]
    assert [(e["client_id"], e["reason"]) for e in evicted] == [("a", "rebalance_timeout")]
    assert [what for _, what, _ in site.callbacks[:2]] == ["assigned", "lost"]
    told = site.told()
    less = [n for n, e in enumerate(told) if e.is_answer and len(e.partitions or ()) == 6]
    fenced = [n for n, each in enumerate(told) if each.error]
    asked = [each for each in told[less[0] : fenced[0]] if not each.is_answer]
    assert len(asked) > 1
    assert None in {each.partitions for each in asked}
    # it joins again, and has what the other one has not
    site.poll_until(lambda: len(site.held()) == 6, "it has its half")


def test_a_member_may_tell_its_application_of_partitions_that_it_has_given_up(site: Site) -> None:
    """Before the application has taken new partitions, a heartbeat after a broken connection
    reports the partitions of before. If the target has changed, others get the new ones at once.
    """
    site.poll_until(lambda: len(site.held()) == PARTITIONS, "it has all")
    epoch = site.other_joins("b")["member_epoch"]
    site.poll_until(lambda: len(site.held()) == 6, "it has given up one half")
    kept = site.held()
    site.poll_until(lambda: bool(numbers_in(site.other("b", epoch))), "b has its half")

    # b leaves. The consumer is told to take its half, and the application does not poll.
    assert site.other("b", -1)["error_code"] == 0
    at = len(site.told())
    _wait(lambda: any(len(each.partitions or ()) == 12 for each in site.told()[at:]))
    # Its next heartbeat is lost with the connection, and c joins.
    cut = threading.Event()

    def hold(frame: Frame) -> float:
        if frame.direction == "request" and not cut.is_set():
            cut.set()
            return CUT
        return 0

    site.proxy.hold = hold
    _wait(cut.is_set)
    epoch = site.other_joins("c")["member_epoch"]
    given: set[int] = set()
    while not given:
        given = numbers_in(site.other("c", epoch))
        time.sleep(0.1)
    given_ns = time.time_ns()

    # Only now the application polls.
    before = len(site.callbacks)
    site.poll_until(lambda: len(site.callbacks) >= before + 2, "it gets and gives up the same")
    assert site.held() == kept
    after = site.callbacks[before : before + 2]
    assert [(what, numbers) for _, what, numbers in after] == [
        ("assigned", given),
        ("revoked", given),
    ]
    assert after[0][0] > given_ns
    ownership = Ownership(site.told(), removals(()))
    assert all(ownership.had_given_up("a", (TOPIC, n), given_ns) for n in given)


def _wait(ready: Any) -> None:
    give_up = time.monotonic() + LIMIT_S
    while not ready():
        assert time.monotonic() < give_up
        time.sleep(0.05)
