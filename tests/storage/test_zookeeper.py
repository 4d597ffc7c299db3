"""A store in a real ZooKeeper: what it refuses, and how it is repaired.

``test_key_stores.py`` has what Consul shares.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from kazoo.exceptions import NoAuthError

from groupkeeper.storage.base import StorageError, StoreRefused
from groupkeeper.storage.tools.repair import repair
from tests.helpers.clients.real_zookeeper import RealZooKeeper
from tests.helpers.core.records import commit
from tests.helpers.storage.late_appends import TTL_MS
from tests.helpers.storage.storage_owner import IDENTITY
from tests.helpers.storage.zookeeper_site import ZooKeeperSite

pytestmark = pytest.mark.zookeeper


@pytest.fixture
async def site(zookeeper: RealZooKeeper) -> AsyncIterator[ZooKeeperSite]:
    site = ZooKeeperSite(zookeeper)
    yield site
    for owner in site.owners:
        await owner.storage.close()


async def test_a_node_of_another_program_is_refused(site: ZooKeeperSite) -> None:
    await site.ask(lambda client: client.create(site.root, b"mine", makepath=True))
    with pytest.raises(StorageError, match="the identity of the store cannot be read"):
        await site.storage().open(IDENTITY)


async def test_a_repair_removes_what_interrupted_writes_left_and_nothing_else(
    site: ZooKeeperSite,
) -> None:
    owner = await site.owner()
    await owner.append(0, [commit("big", 5, metadata="x" * 3_000_000), commit("small", 1)])
    await owner.fold_all()
    wanted = owner.model.keys
    with pytest.raises(StoreRefused, match="is in use by node 1"):
        await repair(site.driver(), IDENTITY, applies=False, lease_ttl_ms=TTL_MS)
    await owner.storage.close()
    groups = f"{site.root}/groups/0"
    valid = await site.below("groups/0/big")
    old = "0" * 32

    def interrupt(client: Any) -> None:
        client.create(f"{groups}/big/{old}.0", b"x")
        client.create(f"{groups}/big/{valid[0].partition('.')[0]}.{len(valid)}", b"x")
        client.create(f"{groups}/small/{old}.0", b"x")
        client.create(f"{groups}/new", f"parts {old} 0".encode())
        client.create(f"{groups}/new/{old}.0", b"x")
        client.create(f"{groups}/odd", b"parts of something else")
        client.create(f"{groups}/odd/child", b"x")

    await site.ask(interrupt)
    for applies in (False, True):
        found = await repair(site.driver(), IDENTITY, applies=applies, lease_ttl_ms=TTL_MS)
        assert sorted(line.removeprefix(groups) for line in found) == [
            "/big: parts of replaced values: 2",
            "/new: has no value, its first write was interrupted",
            "/small: parts of replaced values: 1",
        ]
    assert await site.below("groups/0") == ["big", "odd", "small"]
    assert await site.below("groups/0/big") == valid
    assert await site.below("groups/0/odd") == ["child"]
    assert await repair(site.driver(), IDENTITY, applies=False, lease_ttl_ms=TTL_MS) == []
    await site.ask(lambda client: client.delete(f"{groups}/odd", recursive=True))
    assert (await site.owner()).model.keys == wanted


async def test_nodes_of_a_user_are_closed_to_others(site: ZooKeeperSite) -> None:
    site.user = "me:secret@"
    owner = await site.owner()
    await owner.append(0, [commit("g", 1)])
    await owner.fold_all()
    with pytest.raises(NoAuthError):
        await site.ask(lambda client: client.get(f"{site.root}/groups/0/g"))
    await owner.storage.close()
    site.user = "another:secret@"
    with pytest.raises(StoreRefused, match="the access list does not allow this"):
        await site.storage().open(IDENTITY)
