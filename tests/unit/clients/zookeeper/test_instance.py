"""A registration is changed and deleted only as the version that was read."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from groupkeeper.clients.zookeeper.errors import RegistrationChanged
from groupkeeper.clients.zookeeper.instance import RegistryInstance
from groupkeeper.clients.zookeeper.link import Link
from groupkeeper.clients.zookeeper.names import GroupPaths
from groupkeeper.clients.zookeeper.registration import Registration
from groupkeeper.storage.connections.zookeeper import Node
from groupkeeper.storage.connections.zookeeper_errors import NodeChanged

THEIRS = Registration.static(["theirs"], 2).encode()


class ContestedNode:
    """A link and its session, which sees one node. Another client changes it after each read."""

    def __init__(self) -> None:
        self.held: dict[str, Callable[[], bytes]] = {}
        self.data: bytes | None = None
        self.version = 0

    def session(self) -> ContestedNode:
        return self

    async def create(self, _path: str, data: bytes, *, ephemeral: bool) -> None:
        assert ephemeral
        self.data = data

    async def get(self, _path: str) -> Node:
        assert self.data is not None
        read = Node(self.data, self.version, 1, 1, 0)
        self.data, self.version = THEIRS, self.version + 1
        return read

    async def set(self, _path: str, data: bytes, version: int) -> None:
        self._check(version)
        self.data = data

    async def delete(self, _path: str, node: Node) -> None:
        self._check(node.version)
        self.data = None

    def _check(self, version: int) -> None:
        if version != self.version:
            raise NodeChanged("changed")


@pytest.mark.parametrize("change", ["deregister", "update_registration"])
async def test_what_another_client_wrote_meanwhile_stays_and_is_told(change):
    node = ContestedNode()
    instance = RegistryInstance(cast("Link", node), GroupPaths.of("", "billing"), "a")
    await instance.register(["orders"])
    calls = {
        "deregister": instance.deregister,
        "update_registration": lambda: instance.update_registration(["clicks"]),
    }
    with pytest.raises(RegistrationChanged, match="/consumers/billing/ids/a"):
        await calls[change]()
    assert node.data == THEIRS
    assert list(node.held) == ["/consumers/billing/ids/a"]  # it is still ours
