"""Values of any size in Consul, and the transactions of a fold.

A large value is divided into parts, which have keys of their own. The content of the value's key
names the parts. The parts are written first. The transaction that writes the key also deletes the
parts of the previous value. So a reader finds the old value or the new one. The next write of the
value deletes the parts that an interrupted write has left behind.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Final

from groupkeeper.storage.backends.consul.keys import PART_BYTES, StoreKeys
from groupkeeper.storage.backends.consul.operations import (
    MAX_BODY_BYTES,
    Operation,
    delete,
    delete_all,
    read,
    replace,
    size_of,
    write,
)
from groupkeeper.storage.base import StoreRefused
from groupkeeper.storage.connections.consul import MOST_OPERATIONS, ConsulClient
from groupkeeper.storage.connections.consul_errors import TransactionFailed

VALUE_PART_BYTES: Final = 128 * 1024
"""The size of the parts of a large value. Each part is one transaction. A server has its last 512
transactions in memory, so large ones would fill it."""

READ_PARTS: Final = 8
"""The number of parts, or of entries of a journal, in one answer: at most 3 MB."""

READ_TRIES: Final = 3
"""The number of attempts to read a value if its parts are replaced during each read."""

_IN_PARTS: Final = b"parts "
"""The beginning of a value that is in parts. No other value begins with it."""


class ConsulBatch:
    """Collects operations, and sends them in transactions.

    Each transaction checks that the writer is still registered with the store (``life``). It also
    compares the index of the key ``mark``, and changes this key. So a transaction without an answer
    cannot be executed after a later one. Consul does not change the index of a key if its value
    stays the same. So each transaction writes another value.
    """

    def __init__(self, client: ConsulClient, life: Operation, mark: str, index: int) -> None:
        self.index = index
        """The index of the mark after the last transaction."""
        self.client = client
        self._life = life
        self._mark = mark
        self._operations: list[Operation] = []
        self._bytes = 0

    async def add(self, *operations: Operation) -> None:
        """Add operations that must be in one transaction. If they do not fit into the present
        transaction, first send the earlier operations.
        """
        guard = self._guard()
        count = len(guard) + len(self._operations) + len(operations)
        size = size_of(operations)
        if count > MOST_OPERATIONS or size_of(guard) + self._bytes + size > MAX_BODY_BYTES:
            await self.send()
        self._operations += operations
        self._bytes += size

    def _guard(self) -> list[Operation]:
        return [self._life, replace(self._mark, self.index, uuid.uuid4().hex.encode())]

    async def send(self) -> None:
        """Send the operations added so far. Raises TransactionFailed if one fails, and
        ConsulUnavailable if there is no answer.
        """
        operations, self._operations = self._operations, []
        self._bytes = 0
        if operations:
            changed = await self.client.execute(*self._guard(), *operations)
            self.index = next(each.at_index for each in changed if each.key == self._mark)


class Parts:
    """The versions of all values that are in parts. A version may be left from a write that was
    interrupted.
    """

    def __init__(self, keys: StoreKeys, found: Iterable[str]) -> None:
        """``found`` has the keys of all parts."""
        self._keys = keys
        self.versions: dict[str, set[str]] = {}
        """The versions, by the key of the value."""
        for part in found:
            key, version = keys.whole_of(part)
            self.versions.setdefault(key, set()).add(version)

    async def replace(self, batch: ConsulBatch, values: Sequence[tuple[str, bytes | None]]) -> None:
        """Add to the batch the operations that replace the values of keys. The parts of large
        values are sent at once. A key with None is deleted.
        """
        for key, data in values:
            parts = self._keys.parts_of(key)
            versions = await self._without_leftovers(batch, key, self.versions.pop(key, set()))
            old = [delete_all(f"{parts}{each}.") for each in versions]
            if data is None:
                await batch.add(delete(key), *old)
                continue
            if len(data) > PART_BYTES or data.startswith(_IN_PARTS):
                version = uuid.uuid4().hex
                starts = range(0, len(data), VALUE_PART_BYTES)
                for number, at in enumerate(starts):
                    part = data[at : at + VALUE_PART_BYTES]
                    await batch.add(write(f"{parts}{version}.{number}", part))
                    await batch.send()
                self.versions[key] = {version}
                data = _IN_PARTS + f"{version} {len(starts)}".encode()
            await batch.add(write(key, data), *old)

    async def _without_leftovers(
        self, batch: ConsulBatch, key: str, versions: set[str]
    ) -> Iterable[str]:
        """If there are several versions, add to the batch the deletion of all except the present
        one. Return the versions that remain.

        Each interrupted write leaves a version behind. If the writes of a large value were
        interrupted again and again, these versions would fill the server's memory. And one
        transaction would have no room for the deletion of all of them.
        """
        if len(versions) < 2:
            return versions
        stored = await read_keys(batch.client, [key])
        valid = {version_of(stored.get(key, b""))}
        for version in versions - valid:
            await batch.add(delete_all(f"{self._keys.parts_of(key)}{version}."))
        return versions & valid


def version_of(data: bytes) -> str | None:
    """Return the version of a value that is in parts; None if the value is not in parts."""
    if not data.startswith(_IN_PARTS):
        return None
    return data.removeprefix(_IN_PARTS).decode(errors="replace").partition(" ")[0]


async def read_keys(
    client: ConsulClient, keys: Sequence[str], at_once: int = MOST_OPERATIONS
) -> dict[str, bytes]:
    """Return by key the values of those keys that exist, as they are stored. Raises StoreRefused if
    the token may not read all of them.
    """
    found: dict[str, bytes] = {}
    for at in range(0, len(keys), at_once):
        asked = [*keys[at : at + at_once]]
        while asked:
            try:
                entries = await client.execute(*map(read, asked))
            except TransactionFailed as failed:  # some were deleted, perhaps since they were listed
                asked = [key for i, key in enumerate(asked) if i not in failed.positions]
                continue
            if len(entries) != len(asked):  # Consul leaves out what a token may not read
                raise StoreRefused("permission denied: the token cannot read all keys of the store")
            found |= {entry.key: entry.value for entry in entries}
            break
    return found


async def read_values(
    client: ConsulClient, store: StoreKeys, keys: Sequence[str]
) -> dict[str, bytes]:
    """Return by key the values of those keys that exist, joined from their parts. Raises
    StoreRefused if a part is missing.
    """
    found = await read_keys(client, keys)
    for key in [key for key, data in found.items() if data.startswith(_IN_PARTS)]:
        data = await _read_parts(client, store, key, found.pop(key))
        if data is not None:
            found[key] = data
    return {key: found[key] for key in keys if key in found}


async def _read_parts(
    client: ConsulClient, store: StoreKeys, key: str, data: bytes
) -> bytes | None:
    for _ in range(READ_TRIES):
        if not data.startswith(_IN_PARTS):
            return data
        try:
            version, count = data.removeprefix(_IN_PARTS).decode().split()
            parts = [f"{store.parts_of(key)}{version}.{number}" for number in range(int(count))]
        except ValueError:
            break
        found = await read_keys(client, parts, READ_PARTS)
        if len(found) == len(parts):
            return b"".join(found[part] for part in parts)
        again = await read_keys(client, [key])
        if key not in again:
            return None
        data = again[key]
    raise StoreRefused(f"the value of {key} cannot be read: its parts are missing")
