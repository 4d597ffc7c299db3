"""Writes the znodes of one group in the mirror (``mirror.py``). Znodes of other programs are not
changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeVar

from groupkeeper.storage.backends.zookeeper.values import for_each
from groupkeeper.storage.connections.zookeeper import ZooKeeperSession
from groupkeeper.storage.connections.zookeeper_errors import (
    NodeChanged,
    NodeExists,
    NodeMissing,
    NodeNotEmpty,
    OutcomeUnknown,
    TransactionRefused,
)
from groupkeeper.storage.connections.zookeeper_transaction import ANY_VERSION, SetNode

SETS_AT_ONCE: Final = 200
"""The number of offsets that one transaction sets."""

_V = TypeVar("_V")


class EphemeralNodes(Generic[_V]):
    """The ephemeral znodes below one znode. ZooKeeper deletes them when the session ends."""

    def __init__(self, session: ZooKeeperSession, root: str, encode: Callable[[_V], bytes]) -> None:
        self._session = session
        self._root = root
        self._encode = encode

    async def replace(self, written: dict[str, _V], wanted: Mapping[str, _V]) -> bool:
        """Write the znodes that differ, and change ``written`` accordingly.

        Returns False if a znode belongs to another session. That znode is not changed. The other
        session belongs to another program, or to an earlier process of ours whose session has not
        ended yet.
        """
        gone = [name for name in written if name not in wanted]
        await for_each(self._delete, gone)
        for name in gone:
            del written[name]
        new = [name for name, value in wanted.items() if written.get(name) != value]
        is_put = await for_each(lambda name: self._put(name, wanted[name]), new)
        written |= {
            name: wanted[name] for name, is_ours in zip(new, is_put, strict=True) if is_ours
        }
        return all(is_put)

    async def _put(self, name: str, value: _V) -> bool:
        path, data = f"{self._root}/{name}", self._encode(value)
        try:
            await self._session.create(path, data, ephemeral=True)
            return True
        except NodeExists:
            pass
        try:
            node = await self._session.get(path)
            if node.owner != self._session.id:
                return False
            await self._session.set(path, data, node.version)
        except (NodeMissing, NodeChanged):
            return False
        return True

    async def _delete(self, name: str) -> None:
        path = f"{self._root}/{name}"
        with contextlib.suppress(NodeMissing, NodeChanged):
            node = await self._session.get(path)
            if node.owner == self._session.id:
                await self._session.delete(path, node)


async def replace_offsets(
    session: ZooKeeperSession, root: str, written: dict[str, int], wanted: Mapping[str, int]
) -> None:
    """Write those offsets in ``wanted`` that differ from ``written``. Delete the znodes of those
    that are only in ``written``. Change ``written`` accordingly.
    """
    gone = [place for place in written if place not in wanted]
    await for_each(lambda place: _delete(session, f"{root}/{place}"), gone)
    for place in gone:
        del written[place]
    changed = {place: offset for place, offset in wanted.items() if written.get(place) != offset}
    known = [place for place in changed if place in written]
    for at in range(0, len(known), SETS_AT_ONCE):
        part = known[at : at + SETS_AT_ONCE]
        sets = [SetNode(f"{root}/{place}", b"%d" % changed[place]) for place in part]
        with contextlib.suppress(TransactionRefused, OutcomeUnknown):  # then each is written below
            await session.transact(*sets)
            written |= {place: changed.pop(place) for place in part}
    await for_each(lambda place: _put(session, f"{root}/{place}", b"%d" % changed[place]), changed)
    written |= changed


async def _put(session: ZooKeeperSession, path: str, data: bytes) -> None:
    try:
        found = (await session.get(path)).data
        if found != data:
            await session.set(path, data, ANY_VERSION)
    except NodeMissing:
        with contextlib.suppress(NodeExists):
            await session.create(path, data)


async def delete_empty(session: ZooKeeperSession, root: str) -> None:
    """Delete the znodes of a group that have no children. If a member of the group is registered,
    its znode and the znodes above it stay.
    """
    for kind in ("owners", "offsets"):
        with contextlib.suppress(NodeMissing):
            for topic in (await session.children(f"{root}/{kind}")).names:
                await _delete(session, f"{root}/{kind}/{topic}")
    for path in (f"{root}/ids", f"{root}/owners", f"{root}/offsets", root):
        await _delete(session, path)


async def _delete(session: ZooKeeperSession, path: str) -> None:
    with contextlib.suppress(NodeMissing, NodeNotEmpty):
        await session.delete(path)
