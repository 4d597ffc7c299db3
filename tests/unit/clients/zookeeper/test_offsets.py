"""Offsets are written with the version that was read, and again after a conflict."""

from __future__ import annotations

from typing import cast

import pytest

from groupkeeper.clients.zookeeper import offsets
from groupkeeper.clients.zookeeper.errors import CommitConflict
from groupkeeper.storage.connections.zookeeper import Node, ZooKeeperSession
from groupkeeper.storage.connections.zookeeper_errors import NodeChanged, NodeExists, NodeMissing
from tests.helpers.runtime.virtual_loop import virtual_time

PATH = "/consumers/billing/offsets/orders/0"


class ContestedNode:
    """A session that sees one node. Another client changes it before our first writes."""

    def __init__(self, conflicts: int, data: bytes | None = b"1") -> None:
        self.conflicts = conflicts
        self.data = data
        self.version = 0

    async def get(self, _path: str) -> Node:
        if self.data is None:
            raise NodeMissing("missing")
        return Node(self.data, self.version, 1, 1, 0)

    async def create(self, _path: str, data: bytes) -> None:
        self._contest()
        if self.data is not None:
            raise NodeExists("exists")
        self.data = data

    async def set(self, _path: str, data: bytes, version: int) -> None:
        self._contest()
        if version != self.version:
            raise NodeChanged("changed")
        self.data, self.version = data, version + 1

    def _contest(self) -> None:
        if self.conflicts:
            self.conflicts -= 1
            self.data, self.version = b"7", self.version + 1


async def commit(node: ContestedNode) -> None:
    await offsets.commit(cast("ZooKeeperSession", node), PATH, 42)


@pytest.mark.parametrize("data", [b"1", None])
@pytest.mark.parametrize("conflicts", [0, 1, offsets.COMMIT_TRIES - 1])
@virtual_time
async def test_a_commit_is_repeated_after_each_conflict(conflicts, data):
    node = ContestedNode(conflicts, data)
    await commit(node)
    assert node.data == b"42"
    assert node.conflicts == 0
    assert node.version == conflicts + (data is not None or conflicts > 0)


@virtual_time
async def test_a_commit_that_always_meets_another_is_given_up_and_names_the_node():
    with pytest.raises(CommitConflict, match=PATH):
        await commit(ContestedNode(offsets.COMMIT_TRIES))
