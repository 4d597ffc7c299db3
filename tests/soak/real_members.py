"""Members that are consumers of a real library; each looks at its own member id as it goes.

Their libraries heartbeat, rejoin and repeat by themselves. A commit that a library gave up is not
acknowledged; whether it was made nobody knows. A consumer that is fatally broken, or comes to
nothing for ``STUCK_S``, is replaced by a new one, as an application would do, and that is told.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tests.helpers.clients.client_settings import librdkafka_settings, python_settings

if TYPE_CHECKING:
    from tests.soak.client_host import Part

FETCH_WAIT_MS = 5_000
"""There is nothing to fetch; ask rarely."""
POLL_S = 0.5
COMMIT_LIMIT_S = 30
STUCK_S = 150
"""Longer than an outage, the session of a dead member and the rebalance behind both."""


class GivenUp(Exception):
    """This consumer will not come to anything any more."""


class Turn:
    """What every consumer does beside polling, once in a while."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._progress_s = time.monotonic()
        self._due_s = self._progress_s + part.commit_every_s
        self._member_id = ""

    def identity(self, member_id: str | None) -> None:
        """Write a new member id down. Raises GivenUp."""
        member_id = member_id or ""
        if member_id != self._member_id:
            self._member_id = member_id
            self._part.identity(member_id)
        if time.monotonic() > self._progress_s + STUCK_S:
            raise GivenUp("stuck")

    def is_due(self) -> bool:
        """Is it time to commit?"""
        now_s = time.monotonic()
        if now_s < self._due_s:
            return False
        self._due_s = now_s + self._part.commit_every_s
        return True

    def has(self, offset: int, partitions: list[int]) -> None:
        """A commit was acknowledged."""
        self._progress_s = time.monotonic()
        self._part.has(offset, partitions)


# --- aiokafka -------------------------------------------------------------------------------------


async def live_aiokafka(parts: list[Part]) -> None:
    """Be all these members in one loop."""
    await asyncio.gather(*(_aiokafka(part) for part in parts))


async def _aiokafka(part: Part) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor

    while not part.closing():
        consumer = AIOKafkaConsumer(
            part.topic,
            **python_settings(part),
            rebalance_timeout_ms=part.rebalance_ms,
            fetch_max_wait_ms=FETCH_WAIT_MS,
            partition_assignment_strategy=(RangePartitionAssignor,),
            retry_backoff_ms=1_000,
        )
        try:
            await _poll_aiokafka(part, consumer)
        except GivenUp as why:
            part.begins_anew(str(why))
            # its own tasks, which it cancels, end it by CancelledError now and then
            with suppress(Exception, asyncio.CancelledError):
                await asyncio.wait_for(consumer.stop(), 10)


async def _poll_aiokafka(part: Part, consumer: Any) -> None:
    from aiokafka import TopicPartition
    from aiokafka.errors import IllegalStateError, KafkaError

    turn = Turn(part)
    started = False
    while not part.closing():
        await asyncio.sleep(POLL_S)
        try:
            if not started:
                await consumer.start()
                started = True
            turn.identity(consumer._coordinator.member_id)
            await consumer.getmany(timeout_ms=0)
            held = sorted(tp.partition for tp in consumer.assignment())
            if held and turn.is_due():
                offset = part.sends(held)
                offsets = {TopicPartition(part.topic, p): offset for p in held}
                await asyncio.wait_for(consumer.commit(offsets), COMMIT_LIMIT_S)
                turn.has(offset, held)
        except (KafkaError, IllegalStateError, OSError, TimeoutError):
            continue  # an outage; the library goes on


# --- librdkafka -----------------------------------------------------------------------------------


def live_librdkafka(parts: list[Part]) -> None:
    """Be all these members, a thread each beside the library's own."""
    _in_threads(_librdkafka, parts)


def _librdkafka(part: Part) -> None:
    from confluent_kafka import Consumer

    settings: dict[str, Any] = {
        **librdkafka_settings(part),
        "max.poll.interval.ms": part.rebalance_ms,
        "fetch.wait.max.ms": FETCH_WAIT_MS,
        "partition.assignment.strategy": "range",
        "reconnect.backoff.ms": 500,
        "reconnect.backoff.max.ms": 2_000,
    }
    while not part.closing():
        turn = Turn(part)
        committed: list[Any] = []
        settings["on_commit"] = lambda *answer, done=committed: done.append(answer)
        consumer = Consumer(settings)
        try:
            _poll_librdkafka(part, consumer, turn, committed)
        except GivenUp as why:
            part.begins_anew(str(why))
            consumer.close()


def _poll_librdkafka(part: Part, consumer: Any, turn: Turn, committed: list[Any]) -> None:
    """A commit that waits for its answer here would keep the consumer from polling meanwhile, and
    so from its rebalances. One is under way at a time.
    """
    from confluent_kafka import KafkaException, TopicPartition

    consumer.subscribe([part.topic])
    offset: int | None = None
    while not part.closing():
        message = consumer.poll(POLL_S)
        if message is not None and message.error() and message.error().fatal():
            raise GivenUp(message.error().name())
        while committed:
            error, partitions = committed.pop()
            if error is None and offset is not None:
                turn.has(offset, [p.partition for p in partitions if p.error is None])
            offset = None
        turn.identity(consumer.memberid())
        held = sorted(tp.partition for tp in consumer.assignment())
        if offset is not None or not held or not turn.is_due():
            continue
        offset = part.sends(held)
        try:
            consumer.commit(offsets=[TopicPartition(part.topic, p, offset) for p in held])
        except KafkaException:
            offset = None


# --- kafka-python ---------------------------------------------------------------------------------


def live_kafka_python(parts: list[Part]) -> None:
    """Be all these members, a thread each beside the library's own."""
    _in_threads(_kafka_python, parts)


def _kafka_python(part: Part) -> None:
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import KafkaError

    while not part.closing():
        try:
            consumer = KafkaConsumer(
                part.topic,
                **python_settings(part),
                max_poll_interval_ms=part.rebalance_ms,
                fetch_max_wait_ms=FETCH_WAIT_MS,
                partition_assignment_strategy=(RangePartitionAssignor,),
                reconnect_backoff_ms=500,
                reconnect_backoff_max_ms=2_000,
                retry_backoff_ms=500,
            )
        except KafkaError:
            time.sleep(POLL_S)  # nobody answers now
            continue
        try:
            _poll_kafka_python(part, consumer)
        except GivenUp as why:
            part.begins_anew(str(why))
            with suppress(Exception):
                consumer.close(timeout_ms=5_000)


def _poll_kafka_python(part: Part, consumer: Any) -> None:
    from kafka.errors import FencedInstanceIdError, KafkaError
    from kafka.structs import OffsetAndMetadata, TopicPartition

    turn = Turn(part)
    while not part.closing():
        try:
            # Long polls: ones that expire within a join make it hang now and then.
            consumer.poll(timeout_ms=int(POLL_S * 4000))
            turn.identity(consumer.group_metadata().member_id)
            held = sorted(tp.partition for tp in consumer.assignment())
            if held and turn.is_due():
                offset = part.sends(held)
                value = OffsetAndMetadata(offset, "", -1)
                consumer.commit(
                    {TopicPartition(part.topic, p): value for p in held},
                    timeout_ms=COMMIT_LIMIT_S * 1000,
                )
                turn.has(offset, held)
        except FencedInstanceIdError:
            raise GivenUp("FENCED_INSTANCE_ID") from None
        except KafkaError:
            time.sleep(POLL_S)  # an outage is told by poll; the member goes on


def _in_threads(be: Callable[[Part], None], parts: list[Part]) -> None:
    threads = [threading.Thread(target=be, args=(part,), name=part.name) for part in parts]
    for thread in threads:
        thread.start()
        time.sleep(0.02)  # not all at once
    for thread in threads:
        thread.join()
