"""A store in a real Consul: tokens, names that are hashed, and transactions that come too late."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from groupkeeper.coordinator.core.records import GroupRemoved, TopicRecord
from groupkeeper.storage.backends.consul.driver import ConsulDriver
from groupkeeper.storage.backends.consul.operations import replace, write
from groupkeeper.storage.backends.consul.url import parse_url
from groupkeeper.storage.backends.journal.driver import SeqMoved
from groupkeeper.storage.backends.journal.store import JournalStorage
from groupkeeper.storage.backends.mirror import mirror
from groupkeeper.storage.base import CLUSTER_SHARD, Batch, StorageError, StoreRefused
from groupkeeper.storage.connections.consul import ConsulClient
from groupkeeper.storage.connections.consul_errors import TransactionFailed
from groupkeeper.storage.tools.check import check_journal
from groupkeeper.storage.tools.repair import repair
from tests.helpers.clients.real_consul import START_LIMIT_S, RealConsul
from tests.helpers.core.records import TOPIC_ID, commit
from tests.helpers.storage.consul_site import ConsulSite
from tests.helpers.storage.late_appends import TTL_MS
from tests.helpers.storage.sealed_store import until
from tests.helpers.storage.storage_owner import IDENTITY, Owner

pytestmark = pytest.mark.consul

ROOT_TOKEN = "11111111-1111-1111-1111-111111111111"
ACLS = {
    "primary_datacenter": "dc1",
    "acl": {"enabled": True, "default_policy": "deny", "tokens": {"master": ROOT_TOKEN}},
}


@pytest.fixture
async def site(consul: RealConsul) -> AsyncIterator[ConsulSite]:
    site = ConsulSite(consul)
    yield site
    for owner in site.owners:
        await owner.storage.close()


async def test_a_key_of_another_program_is_refused(site: ConsulSite) -> None:
    await site.set_value("store", b"mine")
    with pytest.raises(StorageError, match="the identity of the store cannot be read"):
        await site.storage().open(IDENTITY)


async def test_a_long_name_is_hashed_and_its_value_has_it(site: ConsulSite) -> None:
    owner = await site.owner()
    name = "a/b" * 1_000
    await owner.append(0, [commit(name, 7)])
    await owner.fold_all()
    (key,) = await site.groups(0)
    assert (key[:2], len(key)) == ("%-", 66)
    assert (await site.value_of(f"groups/0/{key}")).startswith(b"name a%2Fba%2Fb")
    assert (await owner.read()).keys == owner.model.keys
    await owner.append(0, [GroupRemoved(name)])
    await owner.fold_all()
    assert await site.groups(0) == []


async def test_a_transaction_of_a_fold_is_refused_after_a_later_one(site: ConsulSite) -> None:
    """Calls of Consul have no order: one that was given up may be executed later."""
    owner = await site.owner()
    await owner.append(0, [commit("g", 1)])
    await owner.fold_all()
    (life,) = await site.journals()
    async with ConsulClient(site.server.address) as client:
        mark = await client.get(f"{site.prefix}/folds/{life}")
        assert mark is not None
        await owner.append(0, [commit("g", 2)])
        await owner.fold_all()
        with pytest.raises(TransactionFailed):
            await client.execute(
                replace(mark.key, mark.at_index, b"late"),
                write(f"{site.prefix}/groups/0/g", b"an old value"),
            )
    assert (await owner.read()).keys == owner.model.keys


async def test_a_fold_goes_on_after_its_mark_was_changed_without_an_answer(
    site: ConsulSite,
) -> None:
    owner = await site.owner()
    await owner.append(0, [commit("g", 1)])
    await owner.fold_all()
    (life,) = await site.journals()
    await site.set_value(f"folds/{life}", b"an earlier try")
    await owner.append(0, [commit("g", 2)])
    await owner.fold_all()
    await owner.storage.close()
    again = await site.owner()
    assert again.model.keys["offset", 0, "g", "orders", 0][0] == 2


async def test_a_store_that_is_restored_from_a_snapshot_is_loaded_again(site: ConsulSite) -> None:
    owner = await site.owner()
    await owner.append(0, [commit("g", 1)])
    await owner.fold_all()
    snapshot = await asyncio.to_thread(_ask, site.server, "GET", "snapshot", b"")
    await owner.append(0, [commit("g", 2)])
    await asyncio.to_thread(_ask, site.server, "PUT", "snapshot", snapshot)
    item = owner.item(0, Batch([commit("g", 3)], []))
    with contextlib.suppress(SeqMoved):  # a beat may have noticed it before
        assert [*await owner.storage.append([item])] == [0]
    await owner.reload()
    assert owner.model.keys["offset", 0, "g", "orders", 0][0] == 1
    assert owner.storage.stats()["set_backs"] == 1
    await owner.append(0, [commit("g", 4)])


async def test_a_store_is_checked_beside_the_process_that_uses_it(site: ConsulSite) -> None:
    owner = await site.owner()
    await owner.append(0, [commit("g", 1, partitions=5)])
    await owner.append(1, [commit("big", 5, metadata="x" * 1_000_000)])
    await owner.fold_all()
    url = parse_url(f"consul://{site.server.address}/{site.prefix}", {})
    driver = ConsulDriver(url, append_timeout_ms=5_000, lease_ttl_ms=1_000)
    report = await check_journal(driver, IDENTITY, lease_ttl_ms=TTL_MS, measures_writes=True)
    assert (report.used_by, report.groups, report.offsets) == ("node 1 (host:1)", 2, 6)
    assert (report.problems, report.write_ms) == ([], None)


def _ask(server: RealConsul, method: str, path: str, body: bytes) -> bytes:
    request = urllib.request.Request(
        f"http://{server.address}/v1/{path}",
        data=body if method == "PUT" else None,
        method=method,
        headers={"X-Consul-Token": ROOT_TOKEN} if path.startswith("acl/") else {},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return bytes(answer.read())


def wait_for_acls(server: RealConsul) -> None:
    """Wait until tokens can be created. A new leader needs a moment for this."""
    deadline = time.monotonic() + START_LIMIT_S
    while True:
        try:
            _ask(server, "GET", "acl/policies", b"")
        except urllib.error.HTTPError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        else:
            return


def a_token(server: RealConsul, rules: str) -> str:
    """Create a token with a policy."""

    def put(path: str, body: dict[str, Any]) -> dict[str, Any]:
        return dict(json.loads(_ask(server, "PUT", f"acl/{path}", json.dumps(body).encode())))

    policy = put("policy", {"Name": f"p{len(rules)}", "Rules": rules})
    return str(put("token", {"Policies": [{"ID": policy["ID"]}]})["SecretID"])


async def test_a_token_needs_write_for_its_prefix_and_nothing_else(tmp_path: Path) -> None:
    server = RealConsul(tmp_path / "consul", ACLS).start()
    try:
        await asyncio.to_thread(wait_for_acls, server)
        enough = a_token(server, 'key_prefix "kafka/" { policy = "write" }')
        only_read = a_token(server, 'key_prefix "kafka/" { policy = "read" }')
        for token, is_enough in ((enough, True), (only_read, False), ("", False)):
            url = parse_url(f"consul://{server.address}/kafka", {"CONSUL_HTTP_TOKEN": token})
            driver = ConsulDriver(url, append_timeout_ms=5_000, lease_ttl_ms=1_000)
            if is_enough:
                report = await check_journal(
                    driver, IDENTITY, lease_ttl_ms=TTL_MS, measures_writes=True
                )
                assert report.write_ms is not None
            else:
                with pytest.raises(StoreRefused, match="permission denied") as refused:
                    await check_journal(driver, IDENTITY, lease_ttl_ms=TTL_MS, measures_writes=True)
                assert not token or token not in str(refused.value)
    finally:
        server.stop()


STORE_RIGHT = 'key_prefix "kafka/" { policy = "write" }'
MIRROR_RIGHTS = """
key_prefix "groupkeeper/readers/" { policy = "write" }
session "one" { policy = "write" }
"""


async def test_without_the_rights_of_the_mirror_the_store_goes_on_and_the_log_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "PAUSE_S", 0.02)
    server = RealConsul(tmp_path / "consul", ACLS).start()
    try:
        await asyncio.to_thread(wait_for_acls, server)
        session = 'session "one" { policy = "write" }'
        for rules in (STORE_RIGHT, f"{STORE_RIGHT}\n{session}"):
            with capture_logs() as logs:
                owner = await acl_owner(server, a_token(server, rules))
                await owner.append(0, [commit("g", 7)])
                await owner.fold_all()
                await until(lambda: any(e["event"] == "mirror_failed" for e in logs))
                await owner.append(0, [commit("g", 8)])
                await owner.storage.close()
            told = next(each["error"] for each in logs if each["event"] == "mirror_failed")
            assert 'key_prefix "groupkeeper/readers/"' in told
            assert "mirror=off" in told
        token = a_token(server, STORE_RIGHT + MIRROR_RIGHTS)
        with capture_logs() as logs:
            owner = await acl_owner(server, token)
            await owner.append(0, [commit("g", 9)])
            await owner.fold_all()
            await until(lambda: owner.storage.stats()["mirror_lag_s"] == 0)
            await owner.storage.close()
        assert "mirror_failed" not in {each["event"] for each in logs}
        async with ConsulClient(server.address, token=token) as client:
            (position,) = (await client.list("groupkeeper/readers/g/positions/")).entries
        assert (position.key.rpartition("/")[2], position.value) == ("0", b"9")
    finally:
        server.stop()


async def acl_owner(server: RealConsul, token: str) -> Owner:
    """Start a process with the token. The mirror is on."""
    url = parse_url(f"consul://{server.address}/kafka", {"CONSUL_HTTP_TOKEN": token})
    driver = ConsulDriver(url, append_timeout_ms=5_000, lease_ttl_ms=TTL_MS)
    storage = JournalStorage(driver, node_id=1, name="host:1", lease_ttl_ms=TTL_MS)
    owner = await Owner(storage).start()
    await owner.append(CLUSTER_SHARD, [TopicRecord("orders", TOPIC_ID, 1)])
    return owner


async def test_a_repair_removes_what_interrupted_writes_left_and_nothing_else(
    site: ConsulSite,
) -> None:
    owner = await site.owner()
    await owner.append(0, [commit("big", 5, metadata="x" * 3_000_000), commit("small", 1)])
    await owner.fold_all()
    with pytest.raises(StoreRefused, match="is in use by node 1"):
        await repair(site.driver(), IDENTITY, applies=False, lease_ttl_ms=TTL_MS)
    await owner.storage.close()
    valid = await site.below("parts/groups/0/")
    old = "0" * 32
    for name in ("big", "small", "new"):
        await site.set_value(f"parts/groups/0/{name}/{old}.0", b"x")
        await site.set_value(f"parts/groups/0/{name}/{old}.1", b"x")
    for applies in (False, True):
        found = await repair(site.driver(), IDENTITY, applies=applies, lease_ttl_ms=TTL_MS)
        assert found == [
            f"{site.prefix}/groups/0/{name}: parts of versions that it does not have: 1"
            for name in ("big", "new", "small")
        ]
    assert await site.below("parts/groups/0/") == valid
    assert await repair(site.driver(), IDENTITY, applies=False, lease_ttl_ms=TTL_MS) == []
    assert (await site.owner()).model.keys == owner.model.keys
