"""``groupkeeper zookeeper`` against a real ZooKeeper: what it prints and how it exits."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys

import pytest

from groupkeeper.clients.zookeeper.errors import PartitionClaimedByOther
from groupkeeper.clients.zookeeper.registry import Registry
from tests.helpers.printed.printed_docs import ROOT

pytestmark = pytest.mark.registry

LIMIT_S = 60


@contextlib.asynccontextmanager
async def started(servers, *arguments):
    """The command as a process, which is ended with the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "groupkeeper",
        "zookeeper",
        *arguments,
        "--zookeeper",
        servers,
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def done(servers, *arguments):
    """Its exit code, and what it printed."""
    async with started(servers, *arguments) as process:
        out, err = await asyncio.wait_for(process.communicate(), LIMIT_S)
        return process.returncode, out.decode(), err.decode()


@pytest.fixture
async def billing(registry: Registry):
    """A group with an instance, a claim and two offsets."""
    group = registry.group("billing")
    instance = group.instance("a")
    await instance.register({"orders": 1, "clicks": 2})
    await instance.claim_partition("orders", 0)
    await group.commit_offset("orders", 0, 41)
    await group.commit_offset("orders", 1, 7)
    await registry.group("shipping").create()
    return group


async def test_groups_instances_owners_and_offsets_are_tables(servers, billing):
    assert (await done(servers, "groups"))[:2] == (
        0,
        "GROUP     INSTANCES\nbilling           1\nshipping          0\n",
    )
    code, out, _ = await done(servers, "instances", "billing")
    assert code == 0
    assert out.splitlines()[0].split() == ["INSTANCE", "PATTERN", "SUBSCRIPTION", "REGISTERED"]
    assert out.splitlines()[1].split()[:4] == ["a", "static", "clicks:2", "orders"]
    assert (await done(servers, "owners", "billing"))[1] == (
        "TOPIC   PARTITION  OWNER\norders          0  a\n"
    )
    assert (await done(servers, "offsets", "billing"))[1] == (
        "TOPIC   PARTITION  OFFSET\norders          0      41\norders          1       7\n"
    )


async def test_the_same_as_json(servers, billing):
    async def read(*arguments):
        code, out, _ = await done(servers, *arguments, "-o", "json")
        assert code == 0
        return json.loads(out)

    assert await read("groups") == [
        {"group": "billing", "instances": 1},
        {"group": "shipping", "instances": 0},
    ]
    (instance,) = await read("instances", "billing")
    assert instance.pop("registered") > 1_700_000_000
    assert instance == {
        "instance": "a",
        "pattern": "static",
        "subscription": {"clicks": 2, "orders": 1},
    }
    assert await read("owners", "billing") == [{"topic": "orders", "partition": 0, "owner": "a"}]
    assert await read("offsets", "billing") == [
        {"topic": "orders", "partition": 0, "offset": 41},
        {"topic": "orders", "partition": 1, "offset": 7},
    ]
    assert await read("offsets", "shipping") == []


async def test_what_is_done_is_told_as_json(servers, billing):
    async def read(*arguments):
        code, out, _ = await done(servers, *arguments, "-o", "json")
        assert code == 0
        return json.loads(out)

    place = {"topic": "orders", "partition": 0}
    committed = await read("commit", "billing", "orders", "0", "50")
    assert committed == place | {"offset": 50, "before": 41}
    released = await read("release", "billing", "orders", "0", "--instance", "a")
    assert released == place | {"owner": None}
    await billing.instance("a").deregister()
    offsets = [place | {"offset": 50}, place | {"partition": 1, "offset": 7}]
    there = {"group": "billing", "deleted": False, "offsets_only": False, "offsets": offsets}
    there |= {"other_nodes": ["owners/orders"]}
    assert await read("delete", "billing") == there
    assert await read("delete", "billing", "--apply") == there | {"deleted": True}
    async with started(
        servers, *("claim", "billing", "orders", "0", "--instance", "a", "-o", "json")
    ) as process:
        line = await asyncio.wait_for(process.stdout.readline(), LIMIT_S)
        assert json.loads(line) == place | {"owner": "a"}


@pytest.mark.parametrize("command", ["instances", "owners", "offsets", "delete"])
async def test_a_group_that_is_not_there_exits_4(servers, command):
    code, out, err = await done(servers, command, "nobody")
    assert (code, out) == (4, "")
    assert err == "groupkeeper: there is no group 'nobody' in ZooKeeper\n"


async def test_a_name_that_cannot_be_exits_2(servers):
    code, _, err = await done(servers, "offsets", "a/b")
    assert code == 2
    assert err.startswith("groupkeeper: the group 'a/b' contains a slash")


async def test_a_broken_registration_is_listed_and_exits_1(servers, billing):
    instance = billing.instance("b")
    await instance.register(["orders"])
    session = billing._link.session()
    await session.set(f"{billing._paths.ids}/b", b"{", 0)
    code, out, err = await done(servers, "instances", "billing")
    assert code == 1
    assert "BROKEN" in out
    assert "/ids/b: a registration is JSON" in err


async def test_a_claim_is_held_until_the_command_is_stopped(servers, billing):
    claim = ("claim", "billing", "orders", "5", "--instance", "operator")
    async with started(servers, *claim) as process:
        line = await asyncio.wait_for(process.stdout.readline(), LIMIT_S)
        assert b"orders-5 is claimed by 'operator'" in line
        with pytest.raises(PartitionClaimedByOther):
            await billing.instance("a").claim_partition("orders", 5)
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), LIMIT_S) == 130
    await billing.instance("a").claim_partition("orders", 5)
    code, _, err = await done(servers, *claim)
    assert (code, err) == (1, "groupkeeper: orders-5 is claimed by 'a'\n")


async def test_a_claim_is_released(servers, billing):
    release = ("release", "billing", "orders", "0", "--instance", "a")
    assert await done(servers, *release) == (0, "orders-0 is released\n", "")
    assert await billing.partition_owner("orders", 0) is None
    code, _, err = await done(servers, *release)
    assert (code, err) == (1, "groupkeeper: orders-0 is not claimed by 'a'\n")


async def test_an_offset_is_committed(servers, billing):
    done_before = await done(servers, "commit", "billing", "orders", "0", "50")
    assert done_before == (0, "orders-0: 50 (it was 41)\n", "")
    assert await done(servers, "commit", "billing", "orders", "9", "1") == (
        0,
        "orders-9: 1 (there was none)\n",
        "",
    )
    assert await billing.fetch_all_offsets() == {"orders": {0: 50, 1: 7, 9: 1}}


async def test_a_group_is_deleted_when_asked_twice_and_not_while_it_runs(servers, billing):
    code, _, err = await done(servers, "delete", "billing", "--apply")
    assert code == 1
    assert "running instances" in err
    await billing.instance("a").deregister()
    code, out, _ = await done(servers, "delete", "billing")
    assert code == 0
    assert "orders          0      41" in out
    assert "Nothing was changed" in out
    assert await billing.exists()
    assert (await done(servers, "delete", "billing", "--offsets", "--apply"))[0] == 0
    assert await billing.exists()
    assert await billing.fetch_all_offsets() == {}
    assert (await done(servers, "delete", "billing", "--apply"))[0] == 0
    assert not await billing.exists()


async def test_a_watch_prints_each_change_until_it_is_stopped(servers, billing):
    async with started(servers, "watch", "billing") as process:

        async def line():
            return (await asyncio.wait_for(process.stdout.readline(), LIMIT_S)).decode()

        assert await line() == "1 a\n"
        await billing.instance("b").register(["orders"])
        assert await line() == "2 a b\n"
        await billing.instance("a").deregister()
        assert await line() == "1 b\n"
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), LIMIT_S) == 143


async def test_credentials_come_from_a_file(servers, tmp_path):
    config = tmp_path / "zookeeper.properties"
    config.write_text("# who we are\ndigest=ann:secret\nacl=creator\n")
    commit = ("commit", "private", "orders", "0", "7")
    assert (await done(servers, *commit, "--zookeeper-config", str(config)))[0] == 0
    code, _, err = await done(servers, "offsets", "private")
    assert code == 1
    assert "the access list does not allow this" in err
    code, out, _ = await done(servers, "offsets", "private", "--zookeeper-config", str(config))
    assert code == 0
    assert "orders" in out
