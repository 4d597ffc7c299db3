"""Copies the list of topics from the upstream to the cluster shard, which stores our topics.

The upstream is the Kafka cluster behind the gateway.

A topic counts as deleted only if two look-ups by its name, a poll apart, find nothing. The list of
all topics cannot decide this, because it leaves out topics that our user may not see. If the name
has another id, the old topic was deleted. A broker with old metadata may still return the old
id, so the id of a deleted topic is never used again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from itertools import islice
from typing import Final, TypeAlias, TypeVar

import structlog

from groupkeeper.coordinator.cluster.topics import OURSELVES, Topics, mint_topic_id
from groupkeeper.coordinator.core.cluster.names import MAX_TOPIC_NAME_LENGTH
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.topics import ChangeTopics, NewTopic
from groupkeeper.coordinator.gateway.client import BrokerError, NoAnswer
from groupkeeper.coordinator.gateway.topic_list import (
    METADATA,
    METADATA_VERSIONS,
    ObservedTopic,
    topics_of,
)
from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.protocol.writer import Row

TOPICS_AT_ONCE: Final = 200
"""The largest number of topics in one change, in one request by name, and in one iteration of the
event loop."""
LOOK_UP_S: Final = 1.0
"""How long a request may wait for a look-up, and how long an unknown topic is remembered."""
MAX_REMEMBERED: Final = 10_000
"""The largest number of unknown topics, and also of deleted ids, that are remembered. They need
some megabytes.
"""

_log = structlog.get_logger("groupkeeper.gateway")

T = TypeVar("T")
TopicKey: TypeAlias = tuple[str, str]
"""(name, ""), or ("", topic id)."""
WITH_IDS: Final = range(12, METADATA_VERSIONS.stop)
"""Versions in which a request may name topics by id."""

AskFrame = Callable[..., Awaitable[tuple[int, bytes]]]


async def _not_connected(*_: object, **__: object) -> tuple[int, bytes]:
    raise NoAnswer("the upstream is not polled yet")


class ObservedTopics:
    """Keeps the topics of the cluster shard equal to those of the upstream."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self.ask: AskFrame = _not_connected
        """Sends a Metadata request to a broker. ``UpstreamBrokers`` sets this function."""
        self._changing = asyncio.Lock()
        self._missing: set[str] = set()
        """Topics that were unknown in the last poll."""
        self._deleted_ids: dict[str, None] = {}
        self._unknown: dict[TopicKey, float] = {}
        """Topic -> until when it counts as unknown."""
        self._looked_up: dict[TopicKey, asyncio.Task[None]] = {}

    async def refresh(self) -> None:
        """Copy all topics from the upstream, once. Known topics that are not in the list are then
        asked for by name, because only the answer to this can show that a topic was deleted.

        Raises BrokerError if no broker answers.
        """
        seen: set[str] = set()
        found: list[ObservedTopic] = []
        for at, topic in enumerate(topics_of(*await self._ask(None))):
            seen.add(topic.name)
            found.append(topic)
            if at % TOPICS_AT_ONCE == 0:
                await asyncio.sleep(0)
        await self._observe(found)
        absent = [name for name in self._topics.image.by_name if name not in seen]
        unknown = set()
        for names in _portions(absent):
            answers = [*topics_of(*await self._ask([_row(name) for name in names]))]
            unknown |= _unknown_of(answers)
            await self._observe(answers)
        gone = [name for name in absent if name in unknown and name in self._missing]
        await self._delete(gone)
        self._missing = unknown - {*gone}

    async def look_up(self, keys: Collection[TopicKey]) -> None:
        """Ask the upstream for unknown topics, and store those that it has. Returns after
        ``LOOK_UP_S`` at the latest.

        A topic that was unknown less than ``LOOK_UP_S`` ago is not asked for again.
        """
        wanted = self.worth_asking(keys)
        new = [key for key in wanted if key not in self._looked_up]
        for portion in _portions(new):
            task = asyncio.get_running_loop().create_task(self._look_up(portion))
            self._looked_up |= dict.fromkeys(portion, task)
        if tasks := {self._looked_up[key] for key in wanted}:
            await asyncio.wait(tasks, timeout=LOOK_UP_S)

    def worth_asking(self, keys: Collection[TopicKey]) -> list[TopicKey]:
        """Return the topics for which it makes sense to ask the upstream.

        Left out are topics that we know, topics that the upstream did not know less than
        ``LOOK_UP_S`` ago, and names that are too long for any topic. A client may send names of
        32,767 bytes.
        """
        now_s = asyncio.get_running_loop().time()
        return [
            key
            for key in keys
            if len(key[0]) <= MAX_TOPIC_NAME_LENGTH
            and not self._is_known(key)
            and self._unknown.get(key, 0.0) <= now_s
        ]

    def _is_known(self, key: TopicKey) -> bool:
        name, topic_id = key
        image = self._topics.image
        return name in image.by_name if name else topic_id in image.by_id

    async def _look_up(self, keys: list[TopicKey]) -> None:
        try:
            for asked, versions in ((_named(keys), METADATA_VERSIONS), (_by_id(keys), WITH_IDS)):
                if asked:
                    await self._observe([*topics_of(*await self._ask(asked, versions))])
        except (BrokerError, ProtocolError) as error:
            _log.info("topics_not_looked_up", problem=str(error))
        finally:
            if len(self._unknown) > MAX_REMEMBERED:
                self._unknown.clear()
            until_s = asyncio.get_running_loop().time() + LOOK_UP_S
            for key in keys:
                self._looked_up.pop(key, None)
                if not self._is_known(key):
                    self._unknown[key] = until_s

    async def _ask(
        self, topics: list[Row] | None, versions: range = METADATA_VERSIONS
    ) -> tuple[int, bytes]:
        return await self.ask(
            METADATA,
            versions,
            topics=topics,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )

    # --- Changes of the cluster shard -------------------------------------------------------------

    async def _observe(self, found: Iterable[ObservedTopic]) -> None:
        """Store topics as the upstream describes them: new topics, more partitions, and changed
        ids.
        """
        async with self._changing:
            create: list[NewTopic] = []
            grow: list[tuple[str, int]] = []
            replaced: list[str] = []
            by_name = self._topics.image.by_name
            for topic in found:
                if not topic.is_there or topic.topic_id in self._deleted_ids:
                    continue
                known = by_name.get(topic.name)
                if known is not None and topic.topic_id not in ("", known.topic_id):
                    replaced.append(topic.name)
                    known = None
                if known is None:
                    topic_id = topic.topic_id or mint_topic_id()
                    create.append(NewTopic(topic.name, topic.partitions, topic_id))
                elif topic.partitions > known.partitions:
                    grow.append((topic.name, topic.partitions))
            await self._remove(replaced)
            for created in _portions(create):
                await self._change(ChangeTopics(OURSELVES, tuple(created), observed=True))
            for grown in _portions(grow):
                await self._change(ChangeTopics(OURSELVES, (), tuple(grown), observed=True))

    async def _delete(self, names: list[str]) -> None:
        async with self._changing:
            await self._remove(names)

    async def _remove(self, names: list[str]) -> None:
        for portion in _portions(names):
            by_name = self._topics.image.by_name
            ids = [by_name[name].topic_id for name in portion if name in by_name]
            delete = tuple((None, topic_id) for topic_id in ids)
            if await self._change(ChangeTopics(OURSELVES, delete=delete, observed=True)):
                _log.info("topics_deleted_upstream", topics=portion)
                self._deleted_ids |= dict.fromkeys(ids)
        for old in [*islice(self._deleted_ids, max(0, len(self._deleted_ids) - MAX_REMEMBERED))]:
            del self._deleted_ids[old]

    async def _change(self, request: ChangeTopics) -> bool:
        """Change topics. Return False if the shard is loading or the store fails. The next poll
        then repeats the change.
        """
        return (await self._topics.change_and_wait(request)).error is ErrorCode.NONE


def _unknown_of(answers: Iterable[ObservedTopic]) -> set[str]:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return {topic.name for topic in answers if topic.error == unknown}


def _row(name: str | None, topic_id: str = "") -> Row:
    return Row(name=name, topic_id=topic_id)


def _named(keys: Iterable[TopicKey]) -> list[Row]:
    return [_row(name) for name, _ in keys if name]


def _by_id(keys: Iterable[TopicKey]) -> list[Row]:
    return [_row(None, topic_id) for _, topic_id in keys if topic_id]


def _portions(items: list[T]) -> Iterable[list[T]]:
    for start in range(0, len(items), TOPICS_AT_ONCE):
        yield items[start : start + TOPICS_AT_ONCE]
