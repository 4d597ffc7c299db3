"""A process that hosts group members of one client library, for tests with real clients.

    member_host.py CLIENT BOOTSTRAP      CLIENT is aiokafka, librdkafka or kafka-python

Commands are read from stdin and events are written to stdout, one JSON object in each line. So a
test can wait for an event, and can kill members with their process. Each member has its own thread.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import logging
import queue
import signal
import sys
import threading
import time
from typing import Any

from tests.helpers.clients.client_settings import librdkafka_settings, python_settings
from tests.helpers.clients.member_load import (
    Load,
    Offsets,
    Partitions,
    ResumingLoad,
    load_of,
    named,
    pairs,
)

_OUT = threading.Lock()


def emit(name: str, event: str, **values: Any) -> None:
    line = json.dumps({"name": name, "event": event, "at_ns": time.time_ns(), **values})
    with _OUT:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


class Member:
    """The base class of the members of all libraries: the owned partitions, and the commands."""

    is_assigned_by_server = False
    """True for a member of a consumer group (KIP-848)."""

    def __init__(self, bootstrap: str, command: dict[str, Any]) -> None:
        self.bootstrap = bootstrap
        self.name: str = command["name"]
        self.group: str = command["group"]
        self.topics: list[str] = command["topics"]
        self.assignor: str = command.get("assignor", "range")
        self.instance: str | None = command.get("instance")
        self.session_ms: int = command.get("session_ms", 10_000)
        self.heartbeat_ms: int = command.get("heartbeat_ms", 500)
        self.cooperative = self.assignor == "cooperative-sticky" or self.is_assigned_by_server
        self.held: Partitions = set()
        self.calls: queue.Queue[dict[str, Any]] = queue.Queue()
        self.closing = threading.Event()
        self.load: Load | None = None
        self.thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self.thread.start()

    def identity(self) -> dict[str, Any]:
        raise NotImplementedError

    def gained(self, partitions: Partitions) -> None:
        self.held = self.held | partitions if self.cooperative else set(partitions)
        emit(
            self.name,
            "assigned",
            partitions=sorted(self.held),
            gained=sorted(partitions),
            **self.identity(),
        )

    def gave_up(self, partitions: Partitions) -> None:
        self.held -= partitions
        self.forget(partitions)
        emit(self.name, "revoked", partitions=sorted(self.held), revoked=sorted(partitions))

    def lost(self, partitions: Partitions) -> None:
        self.held -= partitions
        self.forget(partitions)
        emit(self.name, "lost", partitions=sorted(self.held), lost=sorted(partitions))

    def forget(self, partitions: Partitions) -> None:
        """Forget the offsets of partitions that the member no longer owns. Their next owner
        continues from the committed offsets.
        """
        if isinstance(self.load, ResumingLoad):
            self.load.forget(partitions)

    def _run(self) -> None:
        try:
            self.run()
        except Exception as error:  # noqa: BLE001 - the test decides what it means
            emit(self.name, "failed", error=type(error).__name__, message=str(error))
        emit(self.name, "ended")

    def run(self) -> None:
        raise NotImplementedError

    def answer(self, command: dict[str, Any], result: Any) -> None:
        """Report the outcome of a command."""
        emit(self.name, command["op"], ok=True, tag=command.get("tag"), result=result)

    def refuse(self, command: dict[str, Any], error: BaseException) -> None:
        emit(
            self.name,
            command["op"],
            ok=False,
            tag=command.get("tag"),
            error=type(error).__name__,
            message=str(error),
        )


class LibrdkafkaMember(Member):
    def protocol_settings(self) -> dict[str, Any]:
        return {**librdkafka_settings(self), "partition.assignment.strategy": self.assignor}

    def identity(self) -> dict[str, Any]:
        return {"member_id": self.consumer.memberid()}

    def run(self) -> None:
        from confluent_kafka import Consumer

        settings: dict[str, Any] = {
            **self.protocol_settings(),
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.interval.ms": 30_000,
        }
        self.consumer = Consumer(settings)

        def as_set(partitions: list[Any]) -> Partitions:
            return {(p.topic, p.partition) for p in partitions}

        self.consumer.subscribe(
            self.topics,
            on_assign=lambda _, ps: self.gained(as_set(ps)),
            on_revoke=lambda _, ps: self.gave_up(as_set(ps)),
            on_lost=lambda _, ps: self.lost(as_set(ps)),
        )
        while not self.closing.is_set():
            message = self.consumer.poll(0.02)
            if message is not None and message.error():
                emit(
                    self.name, "error", error=message.error().name(), message=message.error().str()
                )
            self._commands()
            self._load()
        self.consumer.close()

    def _resume(self, load: ResumingLoad) -> None:
        """Fetch the committed offsets of the new partitions, and continue from them."""
        from confluent_kafka import KafkaException, TopicPartition

        new = self.held - load.positions.keys()
        if not new:
            return
        asked_ns = time.time_ns()
        try:
            found = self.consumer.committed([TopicPartition(*each) for each in new], timeout=20)
        except KafkaException:
            return
        if not any(each.error for each in found):
            load.positions |= {(p.topic, p.partition): max(p.offset, 0) for p in found}
            at = named({each: load.positions[each] for each in new})
            emit(self.name, "resumed", asked_ns=asked_ns, offsets=at)

    def _load(self) -> None:
        if isinstance(self.load, ResumingLoad):
            self._resume(self.load)
        offsets = self.load.take(self.held) if self.load else None
        if offsets is None:
            return
        from confluent_kafka import KafkaException, TopicPartition

        emit(self.name, "committing", offsets=named(offsets))
        try:
            done = self.consumer.commit(
                offsets=[TopicPartition(t, p, o) for (t, p), o in offsets.items()],
                asynchronous=False,
            )
            good = {(p.topic, p.partition): p.offset for p in done if p.error is None}
            emit(self.name, "acknowledged", offsets=named(good))
        except KafkaException as error:
            emit(self.name, "unacknowledged", error=error.args[0].name())

    def _commands(self) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        while not self.calls.empty():
            command = self.calls.get_nowait()
            try:
                if command["op"] == "commit":
                    offsets = pairs(command["offsets"])
                    done = self.consumer.commit(
                        offsets=[TopicPartition(t, p, o) for (t, p), o in offsets.items()],
                        asynchronous=False,
                    )
                    for part in done:
                        if part.error is not None:
                            raise KafkaException(part.error)
                    self.answer(command, named(offsets))
                elif command["op"] == "committed":
                    wanted = [TopicPartition(t, p) for t, p in sorted(self.held)]
                    found = self.consumer.committed(wanted, timeout=20)
                    self.answer(command, named({(p.topic, p.partition): p.offset for p in found}))
                elif command["op"] == "identity":
                    self.answer(command, self.identity())
            except Exception as error:  # noqa: BLE001 - the test decides what it means
                self.refuse(command, error)


class ConsumerProtocolMember(LibrdkafkaMember):
    """A member of a consumer group: the server assigns, and has the timeouts."""

    is_assigned_by_server = True

    def protocol_settings(self) -> dict[str, Any]:
        settings = {**librdkafka_settings(self), "group.protocol": "consumer"}
        del settings["session.timeout.ms"], settings["heartbeat.interval.ms"]
        return settings


class KafkaPythonMember(Member):
    def identity(self) -> dict[str, Any]:
        mine = self.consumer.group_metadata()
        return {"member_id": mine.member_id, "generation": mine.generation_id}

    def run(self) -> None:
        from kafka import ConsumerRebalanceListener, KafkaConsumer
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
        from kafka.coordinator.assignors.range import RangePartitionAssignor
        from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
        from kafka.errors import KafkaError

        assignors = {
            "range": RangePartitionAssignor,
            "roundrobin": RoundRobinPartitionAssignor,
            "cooperative-sticky": CooperativeStickyAssignor,
        }
        self.consumer = KafkaConsumer(
            **python_settings(self),
            partition_assignment_strategy=(assignors[self.assignor],),
            auto_offset_reset="earliest",
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=500,
        )
        member = self

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_assigned(self, assigned: Any) -> None:
                member.gained({(p.topic, p.partition) for p in assigned})

            def on_partitions_revoked(self, revoked: Any) -> None:
                member.gave_up({(p.topic, p.partition) for p in revoked})

            def on_partitions_lost(self, lost: Any) -> None:
                member.lost({(p.topic, p.partition) for p in lost})

        self.consumer.subscribe(self.topics, listener=Listener())
        # Its first join does not wait for metadata. It joins again when the metadata arrives,
        # perhaps much later, and this join sometimes hangs (against Kafka 4.3.1 too). So wait
        # before the first join.
        known = self.consumer._coordinator
        while not all(known._metadata_snapshot.get(topic) for topic in self.topics):
            time.sleep(0.02)
        while not self.closing.is_set():
            try:
                # With short polls, which expire during a join, it sometimes hangs (against Kafka
                # 4.3.1 too).
                self.consumer.poll(timeout_ms=20 if self.load and self.held else 400)
            except KafkaError as error:  # poll raises in an outage; the member continues
                if not error.retriable:
                    raise
                emit(self.name, "error", error=type(error).__name__, message=str(error))
                time.sleep(0.1)
            self._commands()
            self._load()
        self.consumer.close()

    def _offsets(self, offsets: Offsets) -> dict[Any, Any]:
        from kafka.structs import OffsetAndMetadata, TopicPartition

        return {TopicPartition(t, p): OffsetAndMetadata(o, "", -1) for (t, p), o in offsets.items()}

    def _load(self) -> None:
        offsets = self.load.take(self.held) if self.load else None
        if offsets is None:
            return
        from kafka.errors import KafkaError

        emit(self.name, "committing", offsets=named(offsets))
        try:
            self.consumer.commit(self._offsets(offsets), timeout_ms=15_000)
            emit(self.name, "acknowledged", offsets=named(offsets))
        except KafkaError as error:
            emit(self.name, "unacknowledged", error=type(error).__name__)

    def _commands(self) -> None:
        from kafka.structs import TopicPartition

        while not self.calls.empty():
            command = self.calls.get_nowait()
            try:
                if command["op"] == "commit":
                    offsets = pairs(command["offsets"])
                    self.consumer.commit(self._offsets(offsets), timeout_ms=15_000)
                    self.answer(command, named(offsets))
                elif command["op"] == "committed":
                    found = {
                        (t, p): self.consumer.committed(TopicPartition(t, p), timeout_ms=15_000)
                        for t, p in self.held
                    }
                    self.answer(
                        command, named({k: -1 if v is None else v for k, v in found.items()})
                    )
                elif command["op"] == "stale_commit":
                    self.consumer._coordinator._generation.generation_id -= 1
                    self.consumer.commit(
                        self._offsets(pairs(command["offsets"])), timeout_ms=15_000
                    )
                    self.answer(command, None)
                elif command["op"] == "identity":
                    self.answer(command, self.identity())
            except Exception as error:  # noqa: BLE001 - the test decides what it means
                self.refuse(command, error)


class AiokafkaMember(Member):
    def identity(self) -> dict[str, Any]:
        coordinator = self.consumer._coordinator
        return {"member_id": coordinator.member_id, "generation": coordinator.generation}

    def run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor
        from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
        from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

        assignors = {
            "range": RangePartitionAssignor,
            "roundrobin": RoundRobinPartitionAssignor,
            "sticky": StickyPartitionAssignor,
        }
        self.consumer = AIOKafkaConsumer(
            **python_settings(self),
            partition_assignment_strategy=(assignors[self.assignor],),
            auto_offset_reset="earliest",
            retry_backoff_ms=100,
        )
        member = self

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
            async def on_partitions_assigned(self, assigned: Any) -> None:
                member.gained({(p.topic, p.partition) for p in assigned})

            async def on_partitions_revoked(self, revoked: Any) -> None:
                member.gave_up({(p.topic, p.partition) for p in revoked})

        self.consumer.subscribe(self.topics, listener=Listener())
        await self.consumer.start()
        try:
            while not self.closing.is_set():
                try:
                    await self.consumer.getmany(timeout_ms=20)
                except Exception as error:  # noqa: BLE001 - an outage; it goes on
                    emit(self.name, "error", error=type(error).__name__, message=str(error))
                    await asyncio.sleep(0.1)
                await self._commands()
                await self._load()
        finally:
            await self.consumer.stop()

    async def _load(self) -> None:
        offsets = self.load.take(self.held) if self.load else None
        if offsets is None:
            return
        from aiokafka import TopicPartition
        from aiokafka.errors import IllegalStateError, KafkaError

        emit(self.name, "committing", offsets=named(offsets))
        try:
            await asyncio.wait_for(
                self.consumer.commit({TopicPartition(t, p): o for (t, p), o in offsets.items()}), 15
            )
            emit(self.name, "acknowledged", offsets=named(offsets))
        except (KafkaError, IllegalStateError, TimeoutError) as error:
            emit(self.name, "unacknowledged", error=type(error).__name__)

    async def _commands(self) -> None:
        from aiokafka import TopicPartition

        while not self.calls.empty():
            command = self.calls.get_nowait()
            try:
                if command["op"] == "commit":
                    offsets = pairs(command["offsets"])
                    await self.consumer.commit(
                        {TopicPartition(t, p): o for (t, p), o in offsets.items()}
                    )
                    self.answer(command, named(offsets))
                elif command["op"] == "committed":
                    found = {
                        (t, p): await self.consumer.committed(TopicPartition(t, p))
                        for t, p in self.held
                    }
                    self.answer(
                        command, named({k: -1 if v is None else v for k, v in found.items()})
                    )
                elif command["op"] == "stale_commit":
                    self.consumer._coordinator.generation -= 1
                    await self.consumer.commit(
                        {TopicPartition(t, p): o for (t, p), o in pairs(command["offsets"]).items()}
                    )
                    self.answer(command, None)
                elif command["op"] == "identity":
                    self.answer(command, self.identity())
            except Exception as error:  # noqa: BLE001 - the test decides what it means
                self.refuse(command, error)


CLIENTS: dict[str, type[Member]] = {  # a member of the classic protocol
    "aiokafka": AiokafkaMember,
    "librdkafka": LibrdkafkaMember,
    "kafka-python": KafkaPythonMember,
}


def main() -> None:
    # prints the stacks of all threads, for a member that hangs
    faulthandler.register(signal.SIGUSR1)
    kind, bootstrap = sys.argv[1:]
    logging.disable(logging.CRITICAL)
    members: dict[str, Member] = {}
    for line in sys.stdin:
        command = json.loads(line)
        name = command["name"]
        if command["op"] == "join":
            of_consumer_group = command.get("protocol") == "consumer"
            member = ConsumerProtocolMember if of_consumer_group else CLIENTS[kind]
            members[name] = member(command.get("bootstrap") or bootstrap, command)
        elif command["op"] == "leave":
            members[name].closing.set()
        elif command["op"] == "load":
            members[name].load = load_of(command)
        else:
            members[name].calls.put(command)


if __name__ == "__main__":
    main()
