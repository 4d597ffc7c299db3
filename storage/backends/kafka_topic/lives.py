"""The life of this process in the log of lives: its beginning, its beats and its end.

A *life* is the registration of one process with the store. A *beat* is a message of a life which
shows that its process is alive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Final

import msgspec
import structlog

from groupkeeper.storage.backends.journal.driver import LifeOver
from groupkeeper.storage.backends.kafka_topic.link import KafkaLink
from groupkeeper.storage.backends.kafka_topic.lives_log import (
    FORMAT,
    LivesLog,
    SealedNote,
    end_message,
    life_message,
    store_message,
)
from groupkeeper.storage.backends.kafka_topic.topics import LIVES_PARTITION
from groupkeeper.storage.base import (
    StorageError,
    StoreIdentity,
    StoreRefused,
    refuse_other_identity,
)
from groupkeeper.storage.event_log.log_clock import mint_log_id
from groupkeeper.storage.event_log.source import LogNote
from groupkeeper.storage.leases.lives import LifeWatch, NodeLife

_FIRST: Final = 0

_log = structlog.get_logger(__name__)


class TopicLife:
    """Writes the messages of this process to the log of lives, and reads those of all processes."""

    def __init__(
        self,
        link: KafkaLink,
        topic: str,
        name: str,
        *,
        ttl_ms: int,
        timer_ms: Callable[[], int],
    ) -> None:
        """``name`` is the name of the store, for error messages."""
        self.log = LivesLog()
        self.life: NodeLife | None = None
        """None if the life has ended, or if no life was begun yet."""
        self._began = 0
        """The offset of the first message of the life."""
        self._link = link
        self._topic = topic
        self._name = name
        self._ttl_ms = ttl_ms
        self._timer_ms = timer_ms
        self._one_at_a_time = asyncio.Lock()
        self._new_name = mint_log_id()
        """The name that our messages record if the store has none yet. If our life is refused, its
        messages do not count, and neither does this name."""

    async def check_identity(self, identity: StoreIdentity) -> None:
        """Write the identity of a new store. Raises StoreRefused if the store has another
        identity.
        """
        await self._read()
        if self.log.identity is None:
            await self._write(*store_message(identity))
        await self.look(identity)

    async def look(self, identity: StoreIdentity) -> Sequence[NodeLife]:
        """Read all messages, and return the lives that have not ended. Write nothing. Raises
        StoreRefused if the store has another identity, or if no process has created the store yet.
        """
        await self._read()
        if self.log.format > FORMAT:
            raise StoreRefused(f"{self._name}: was written by a newer groupkeeper")
        if self.log.identity is None:
            raise StoreRefused(f"{self._name}: has no store yet: the first start creates it")
        refuse_other_identity(self._name, self.log.identity, identity)
        return self.log.living()

    async def begin(self, node_id: int, life_id: str, name: str) -> None:
        """Begin a life. Raises StoreRefused if another process uses the store.

        If that process was killed, wait until its life counts as dead, and end this life first.
        """
        await self._read()
        if others := self.log.living():
            await self._wait_until_dead(others)
        life = NodeLife(node_id, life_id, name, _FIRST)
        self.life = life
        try:
            self._began = await self.write()
        except LifeOver:
            others = self.log.living()
            raise self._in_use(others[0] if others else life) from None
        except BaseException:
            self.life = None
            raise

    async def write(self, shards: Collection[int] = ()) -> int:
        """Write a message of our life, and read all messages up to it. Return its offset.

        Each such message is a beat. If it names ``shards``, it also acquires them. Raises LifeOver
        if the life had ended before the message.
        """
        async with self._one_at_a_time:
            if self.life is None:
                raise LifeOver(f"{self._name}: the life has ended")
            life = self.life = self.life._replace(counter=self.life.counter + 1)
            store = self.log.store or self._new_name
            key, value = life_message(life, self.log.position, shards, store)
            offset = await self._write(key, value)
            await self._read()
            if not self.log.goes_on(life.life_id):
                self.life = None
                raise LifeOver(f"{self._name}: the life {life.life_id} has ended")
            return offset

    async def end(self) -> None:
        """End our own life."""
        async with self._one_at_a_time:
            life, self.life = self.life, None
            if life is not None:
                await self._write(*end_message(life.life_id, life.counter))

    async def note_sealed(self, log: str, note: LogNote) -> None:
        """Record how far an event log is in files. Raises StorageError if the life has ended."""
        if self.life is None:
            raise StorageError(f"{self._name}: the life has ended")
        before = self.log.sealed.get(log)
        sealed = SealedNote(
            log,
            self.life.life_id,
            self._began,
            note.log_ids,
            note.log_dir or "",
            note.sealed_seq,
            note.begin_seq,
        )
        await self._write(sealed.key, msgspec.json.encode(sealed))
        if before is not None and before.key != sealed.key:
            await self._write(before.key, None)

    async def _wait_until_dead(self, others: Sequence[NodeLife]) -> None:
        """Wait until the other lives count as dead, and end them. Raises StoreRefused if one of
        them beats.
        """
        watch = LifeWatch(self._ttl_ms)
        first = {life.life_id: life for life in others}
        _log.warning("life_goes_on", store=self._name, name=others[0].name)
        while True:
            sent_ms = self._timer_ms()
            await self._read()
            lives = self.log.living()
            for life in lives:
                if life.life_id not in first or life.counter != first[life.life_id].counter:
                    raise self._in_use(life)
            for life in watch.look(lives, sent_ms, self._timer_ms()):
                await self._write(*end_message(life.life_id, life.counter))
            await self._read()
            if not self.log.living():
                return
            await asyncio.sleep(watch.next_look_ms() / 1000)

    def _in_use(self, life: NodeLife) -> StoreRefused:
        return StoreRefused(
            f"{self._name}: is in use by node {life.node_id} ({life.name}): stop it first, "
            "or name another store"
        )

    async def _write(self, key: bytes, value: bytes | None) -> int:
        return await self._link.write(self._topic, LIVES_PARTITION, (key, value))

    async def _read(self) -> None:
        """Read all messages up to the present end."""
        portions = self._link.read(
            self._topic, LIVES_PARTITION, self.log.position, only_committed=False
        )
        async for position, messages in portions:
            for message in messages:
                self.log.apply(message.offset, message.key, message.value)
            self.log.position = position
