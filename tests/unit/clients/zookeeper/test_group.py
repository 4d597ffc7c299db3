"""A group is deleted while others create nodes in it."""

from __future__ import annotations

from typing import cast

import pytest

from groupkeeper.clients.zookeeper.errors import RunningInstances
from groupkeeper.clients.zookeeper.group import RegistryGroup
from groupkeeper.clients.zookeeper.link import Link
from groupkeeper.storage.connections.zookeeper import Children
from groupkeeper.storage.connections.zookeeper_errors import NodeMissing, NodeNotEmpty

ROOT = "/consumers/billing"


class BusyTree:
    """A link and its session, which sees a few nodes. Another client adds one after our look at the
    children of the group."""

    chroot = ""

    def __init__(self, added: str) -> None:
        self.nodes = {ROOT, f"{ROOT}/ids", f"{ROOT}/offsets", f"{ROOT}/offsets/orders"}
        self._added: str | None = added

    def session(self) -> BusyTree:
        return self

    async def children(self, path: str) -> Children:
        below = self._below(path)
        if path == ROOT and self._added is not None:
            parent = self._added.rpartition("/")[0]
            self.nodes |= {parent, self._added}
            self._added = None
        return Children(below, 1)

    async def delete(self, path: str) -> None:
        if self._below(path):
            raise NodeNotEmpty(path)
        self.nodes.remove(path)

    def _below(self, path: str) -> tuple[str, ...]:
        if path not in self.nodes:
            raise NodeMissing(path)
        found = (each.rpartition("/") for each in self.nodes)
        return tuple(sorted(name for parent, _, name in found if parent == path))


async def delete(tree: BusyTree) -> None:
    await RegistryGroup(cast("Link", tree), "billing", 0).delete()


async def test_a_node_that_another_client_creates_meanwhile_is_deleted_too():
    tree = BusyTree(f"{ROOT}/positions/orders")
    await delete(tree)
    assert tree.nodes == set()


async def test_the_nodes_that_go_with_a_group_beside_its_offsets_are_known_before():
    tree = BusyTree(f"{ROOT}/owners/orders")
    tree.nodes |= {f"{ROOT}/notes", f"{ROOT}/owners", f"{ROOT}/ids/a"}
    group = RegistryGroup(cast("Link", tree), "billing", 0)
    await group.other_nodes()  # the first look adds the owner
    assert await group.other_nodes() == ["notes", "owners/orders"]


async def test_an_instance_that_joins_meanwhile_keeps_its_registration_and_the_caller_is_told():
    tree = BusyTree(f"{ROOT}/ids/a")
    with pytest.raises(RunningInstances, match="joined while it was deleted"):
        await delete(tree)
    assert tree.nodes == {ROOT, f"{ROOT}/ids", f"{ROOT}/ids/a"}
