"""Writes the mirror, a copy of our groups, in the layout of ``groupkeeper.clients`` in Consul.

Below ``PREFIX/GROUP/``::

    live/members/TOPIC/MEMBER        {"partitions": N}, under a lock of the mirror's session
    live/owners/TOPIC/PARTITION      the id of the member, under such a lock
    positions/TOPIC/PARTITION        the committed offset

Consul deletes the keys under ``live`` when the session ends. A group may have members of the mirror
and instances of ``groupkeeper.clients`` at the same time. So the mirror changes no key that another
session has locked, and no position of a partition that another session owns.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from groupkeeper.storage.backends.consul.operations import (
    MAX_BODY_BYTES,
    Operation,
    delete,
    replace,
    size_of,
)
from groupkeeper.storage.backends.mirror.mirrored import NO_NODES, MirroredGroup
from groupkeeper.storage.connections.consul import (
    LEAST_TTL_MS,
    MOST_OPERATIONS,
    ConsulClient,
    ConsulEntry,
)
from groupkeeper.storage.connections.consul_errors import (
    ConsulRefused,
    TransactionFailed,
    is_denied,
)
from groupkeeper.storage.connections.consul_session import ConsulSession

LONGEST_NAME: Final = 249
"""The same limit as for the name of a topic in Kafka."""

MOST_KNOWN: Final = 100_000
"""The largest number of keys that are remembered. They need about 40 MB. Before a write of a group
whose keys are not remembered, its keys are listed."""

THREAD_OFFSETS: Final = 5_000
"""The changes of a group with more offsets are computed on a thread, not on the event loop."""

_NO_LOCK_DELAY: Final = 0
"""When the session has ended, another process may lock the keys at once: the lock shows who owns a
partition, and protects nothing."""

_BAD: Final = re.compile(r"[/\x00-\x1f\x7f\ud800-\udfff]")


def is_key_name(name: str) -> bool:
    """Return True if the layout allows this name."""
    return name not in ("", ".", "..") and len(name) <= LONGEST_NAME and not _BAD.search(name)


class _Change(NamedTuple):
    """Operations on one key that are executed together or not at all, and the value of the key
    after them.
    """

    key: str
    value: bytes | None
    """None if the key is deleted."""
    operations: tuple[Operation, ...]


class ConsulMirrorSession:
    """Writes the mirror over one session of Consul, which is renewed until it is closed."""

    def __init__(self, client: ConsulClient, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self._session = ConsulSession(client, LEAST_TTL_MS, _NO_LOCK_DELAY)
        self._ended = asyncio.Event()
        self._known: dict[str, dict[str, ConsulEntry]] = {}
        """Maps each group to its keys, as this session has last read or written them. The group
        that was written last is at the end."""
        self._known_keys = 0
        self._positions: dict[str, set[str]] = {}
        """Maps each group to the keys of positions that this session has written."""

    async def open(self) -> None:
        """Begin the session. Raises ConsulError if Consul refuses this or does not answer."""
        with _rights_named(self._prefix):
            await self._session.open("groupkeeper mirror", lambda _: self._ended.set())

    @property
    def why_ended(self) -> str | None:
        return self._session.lost_because

    async def wait_ended(self) -> object:
        return await self._ended.wait()

    async def close(self) -> None:
        await self._session.close()
        self._ended.set()
        await self._client.close()

    async def write(
        self, group_id: str, wanted: MirroredGroup | None, partitions: Mapping[str, int]
    ) -> bool:
        with _rights_named(self._prefix):
            return await self._write(group_id, wanted, partitions)

    async def _write(
        self, group_id: str, wanted: MirroredGroup | None, partitions: Mapping[str, int]
    ) -> bool:
        root = f"{self._prefix}/{group_id}/"
        known = self._forget(group_id)  # until the outcome is known
        if known is None:
            known = {entry.key: entry for entry in (await self._client.list(root)).entries}
        nodes = NO_NODES if wanted is None else wanted
        locked = dict(_locked(root, nodes, partitions))
        written = self._positions.setdefault(group_id, set())
        positions: dict[str, bytes] = {}

        def plan() -> list[_Change]:
            positions.update(
                (f"{root}positions/{at}", b"%d" % n) for at, n in nodes.offsets.items()
            )
            return [*self._locks(known, locked), *self._moves(root, known, positions, written)]

        is_large = len(nodes.offsets) > THREAD_OFFSETS
        changes = await asyncio.to_thread(plan) if is_large else plan()
        refused = await self._execute(known, changes)
        done = {change.key: change.value for change in changes if change.key not in refused}
        written.update(key for key in done if key in positions)
        written.difference_update(key for key, value in done.items() if value is None)
        is_free = all(known[key].session == self._session.id for key in locked if key in known)
        if wanted is None:
            del self._positions[group_id]
        elif not refused and is_free:
            self._remember(group_id, known)
        return not refused and is_free

    def _remember(self, group_id: str, known: dict[str, ConsulEntry]) -> None:
        self._known[group_id] = known
        self._known_keys += len(known)
        while self._known_keys > MOST_KNOWN:
            self._forget(next(iter(self._known)))

    def _forget(self, group_id: str) -> dict[str, ConsulEntry] | None:
        known = self._known.pop(group_id, None)
        self._known_keys -= 0 if known is None else len(known)
        return known

    def _locks(
        self, known: Mapping[str, ConsulEntry], locked: Mapping[str, bytes]
    ) -> Iterator[_Change]:
        """Yield the changes to the keys of members and owners."""
        own = self._session.id
        for key, entry in known.items():
            if entry.session == own and key not in locked:
                ours = {"Verb": "check-session", "Key": key, "Session": own}
                yield _Change(key, None, (ours, delete(key)))
        for key, value in locked.items():
            found = known.get(key)
            if found is not None and found.session not in (None, own):
                continue
            if found is None or (found.session, found.value) != (own, value):
                lock = {"Verb": "lock", "Key": key, "Value": value, "Session": own}
                yield _Change(key, value, (lock,))

    def _moves(
        self,
        root: str,
        known: Mapping[str, ConsulEntry],
        wanted: Mapping[str, bytes],
        written: set[str],
    ) -> Iterator[_Change]:
        """Yield the changes to the keys of positions. Each change compares the index of its key."""

        def is_foreign(key: str) -> bool:
            owner = known.get(f"{root}live/owners/{key.removeprefix(f'{root}positions/')}")
            return owner is not None and owner.session not in (None, self._session.id)

        for key in sorted(written - wanted.keys()):
            if key in known and not is_foreign(key):
                gone = {"Verb": "delete-cas", "Key": key, "Index": known[key].at_index}
                yield _Change(key, None, (gone,))
        for key, value in wanted.items():
            found = known.get(key)
            if not is_foreign(key) and (found is None or found.value != value):
                index = 0 if found is None else found.at_index
                yield _Change(key, value, (replace(key, index, value),))

    async def _execute(self, known: dict[str, ConsulEntry], changes: list[_Change]) -> set[str]:
        """Execute changes, and record them in ``known``. Return the keys of the changes that Consul
        refuses, because another program has changed the keys first.
        """
        refused: set[str] = set()
        for portion in _portions(changes):
            left = portion
            while left:
                places = [change for change in left for _ in change.operations]
                operations = [each for change in left for each in change.operations]
                try:
                    entries = await self._client.execute(*operations)
                except TransactionFailed as failed:
                    if "invalid session" in str(failed):
                        self._session.lose("Consul ended the session")
                        raise
                    bad = {places[at].key for at in failed.positions}
                    refused |= bad
                    left = [change for change in left if change.key not in bad]
                    continue
                _note(known, left, {entry.key: entry for entry in entries})
                break
        return refused


@contextmanager
def _rights_named(prefix: str) -> Iterator[None]:
    """If the block raises an error about a missing right, add to its message which rights the
    mirror needs.
    """
    try:
        yield
    except ConsulRefused as error:
        if not is_denied(error):
            raise
        raise ConsulRefused(
            f"{error}; the store goes on. For the mirror give the token the policy write for "
            f'key_prefix "{prefix}/" and for the session of this agent, or set mirror=off in '
            "storage.url"
        ) from error


def _locked(
    root: str, nodes: MirroredGroup, partitions: Mapping[str, int]
) -> Iterator[tuple[str, bytes]]:
    """Yield the keys to lock, each with its value. A member that subscribes by a pattern has a key
    for each topic of which it owns partitions.
    """
    topics: dict[str, set[str]] = {}
    for place, member in nodes.owners.items():
        topics.setdefault(member, set()).add(place.rpartition("/")[0])
        yield f"{root}live/owners/{place}", member.encode()
    for member, subscribed in nodes.ids.items():
        shown = topics.get(member, set())
        if subscribed.pattern == "static":
            shown = shown | {topic for topic in subscribed.topics if is_key_name(topic)}
        for topic in sorted(shown):
            value = json.dumps({"partitions": partitions.get(topic, 0)}).encode()
            yield f"{root}live/members/{topic}/{member}", value


def _portions(changes: list[_Change]) -> Iterator[list[_Change]]:
    """Divide changes into portions that each fit into one transaction."""
    portion: list[_Change] = []
    count = size = 0
    for change in changes:
        more = size_of(change.operations)
        many = len(change.operations)
        if portion and (count + many > MOST_OPERATIONS or size + more > MAX_BODY_BYTES):
            yield portion
            portion, count, size = [], 0, 0
        portion.append(change)
        count, size = count + many, size + more
    if portion:
        yield portion


def _note(
    known: dict[str, ConsulEntry], changes: list[_Change], entries: Mapping[str, ConsulEntry]
) -> None:
    for change in changes:
        if change.value is None:
            known.pop(change.key, None)
        else:
            known[change.key] = entries[change.key]._replace(value=change.value)


def consul_mirror(
    connect: Callable[[], ConsulClient], prefix: str
) -> Callable[[], Awaitable[ConsulMirrorSession]]:
    """Return a function that opens a session of a mirror, over its own connection."""

    async def open_session() -> ConsulMirrorSession:
        session = ConsulMirrorSession(connect(), prefix)
        try:
            await session.open()
        except BaseException:
            await session.close()
            raise
        return session

    return open_session
