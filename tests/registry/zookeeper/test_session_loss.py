"""Sessions lost on purpose: the server stopped, the connection cut, the process stopped."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from pathlib import Path

import pytest

from groupkeeper.clients.zookeeper.registry import Registry
from groupkeeper.storage.connections.zookeeper_errors import SessionLost
from tests.helpers.printed.printed_docs import ROOT
from tests.helpers.wire.cutting_proxy import CuttingProxy

pytestmark = pytest.mark.registry

TIMEOUT_MS = 1_200
LIMIT_S = 20


async def in_time(awaitable):
    return await asyncio.wait_for(awaitable, LIMIT_S)


@pytest.fixture
async def proxy(zookeeper):
    async with CuttingProxy(zookeeper.port) as proxy:
        yield proxy


@pytest.fixture
def through(proxy, chroot):
    """The connection string of a registry whose connection can be cut."""
    return f"127.0.0.1:{proxy.port}{chroot}"


async def a_member(registry: Registry):
    """An instance that is registered and has claimed a partition."""
    instance = registry.group("billing").instance("a")
    await instance.register(["orders"])
    await instance.claim_partition("orders", 0)
    return instance


def session_path(registry: Registry, topic: str, partition: int) -> str:
    """The node of a claim."""
    return registry.group("billing")._paths.owner(topic, partition)


async def every_object_says_so(registry: Registry) -> None:
    group = registry.group("billing")
    instance = group.instance("a")
    for call in (
        registry.groups,
        group.exists,
        group.create,
        group.delete,
        group.instances,
        group.watch_instances,
        group.topics,
        group.owners,
        group.fetch_all_offsets,
        group.reset_offsets,
        lambda: group.fetch_offset("orders", 0),
        lambda: group.commit_offset("orders", 0, 1),
        lambda: group.delete_offset("orders", 0),
        lambda: group.partition_owner("orders", 0),
        lambda: group.watch_partition_owner("orders", 0),
        instance.registered,
        instance.registration,
        instance.watch_registration,
        instance.deregister,
        lambda: instance.register(["orders"]),
        lambda: instance.update_registration(["orders"]),
        lambda: instance.claim_partition("orders", 0),
        lambda: instance.release_partition("orders", 0),
    ):
        with pytest.raises(SessionLost, match="is lost"):
            await call()


async def is_gone(other: Registry) -> None:
    """Wait until nothing of the lost session is left."""
    async with await other.group("billing").watch_instances() as watch:
        while watch.current:
            await in_time(anext(watch))
    async with await other.group("billing").watch_partition_owner("orders", 0) as owner:
        while owner.current:
            await in_time(anext(owner))


async def run_to_its_end(watch):
    async for _ in watch:
        pass


async def watchers_end(watches):
    for watch in watches:
        with pytest.raises(SessionLost):
            await in_time(run_to_its_end(watch))


@pytest.mark.parametrize("how", ["swallow", "refuse"])
async def test_a_cut_connection_ends_the_session_and_all_objects_say_so(proxy, through, other, how):
    async with Registry(through, session_timeout_ms=TIMEOUT_MS) as registry:
        instance = await a_member(registry)
        watches = [
            await registry.group("billing").watch_instances(),
            await registry.group("billing").watch_partition_owner("orders", 0),
            await instance.watch_registration(),
        ]
        waiting = asyncio.create_task(watchers_end(watches))
        getattr(proxy, how)()
        lost = await in_time(registry.wait_lost())
        assert "every registration and claim" in str(lost)
        await in_time(waiting)
        await every_object_says_so(registry)
        proxy.swallow(False)
        proxy.refuse(False)
        await is_gone(other)
        await every_object_says_so(registry)  # nothing comes back by itself
        assert await other.group("billing").instances() == ()


async def test_we_know_of_the_loss_before_another_can_claim(proxy, through, other):
    async with Registry(through, session_timeout_ms=TIMEOUT_MS) as registry:
        await a_member(registry)
        async with await other.group("billing").watch_partition_owner("orders", 0) as owner:
            proxy.swallow()
            assert await in_time(anext(owner)) is None
        with pytest.raises(SessionLost):
            await registry.group("billing").instance("a").registered()


async def test_a_short_cut_loses_nothing(proxy, through, other):
    async with Registry(through, session_timeout_ms=6_000) as registry:
        instance = await a_member(registry)
        group = registry.group("billing")
        async with await group.watch_instances() as watch:
            for n in range(10):
                proxy.cut()
                await other.group("billing").instance(f"b{n}").register(["orders"])
                while len(watch.current) < n + 2:  # what changed while it was cut is seen
                    await in_time(anext(watch))
                await in_time(group.commit_offset("orders", 0, n))
                assert await in_time(group.fetch_offset("orders", 0)) == n
        assert await instance.registered()
        assert await group.partition_owner("orders", 0) == instance


async def test_a_late_answer_counts_from_the_moment_of_its_request(proxy, through):
    """The servers count from the request as well, so we must not count from the answer."""
    async with Registry(through, session_timeout_ms=60_000) as registry:  # no beat comes between
        session = registry._link.session()
        proxy.swallow_answers()
        calling = asyncio.create_task(registry.groups())
        await asyncio.sleep(0.3)
        late = asyncio.get_running_loop().time()
        proxy.swallow_answers(False)
        await in_time(calling)
        assert session._good_until < late + 60


async def test_a_server_that_accepts_and_says_nothing_does_not_use_up_the_session(proxy, through):
    async with Registry(through, session_timeout_ms=6_000) as registry:
        instance = await a_member(registry)
        proxy.ignore()
        proxy.cut()
        assert await in_time(instance.registered())
        assert await registry.group("billing").partition_owner("orders", 0) == instance


async def test_writes_during_cuts_are_carried_out_once(proxy, through, other):
    async with Registry(through, session_timeout_ms=6_000) as registry:
        group = registry.group("billing")
        # The handshake passes, then some answers; the next is lost, though its request was served.
        proxy.lose_answers(itertools.cycle((2, 1, 3, 4)))
        proxy.cut()
        for n in range(5):
            instance = group.instance(f"i{n}")
            await in_time(instance.register(["orders"]))
            await in_time(instance.claim_partition("orders", n))
            await in_time(group.commit_offset("orders", n, n))
            await in_time(instance.update_registration(["clicks"]))
            await in_time(instance.release_partition("orders", n))
            await in_time(instance.deregister())
        proxy.lose_answers(None)
        assert await group.instances() == ()
        assert await group.owners() == {"orders": {}}
        assert await group.fetch_all_offsets() == {"orders": {n: n for n in range(5)}}


async def test_a_release_whose_answer_was_lost_leaves_the_next_owner_its_claim(
    proxy, through, other
):
    async with Registry(through, session_timeout_ms=6_000) as registry:
        await a_member(registry)
        session = registry._link.session()
        path = session_path(registry, "orders", 0)
        node = await session.get(path)
        proxy.swallow_answers()
        releasing = asyncio.create_task(session.delete(path, node))
        next_owner = other.group("billing").instance("b")
        async with await other.group("billing").watch_partition_owner("orders", 0) as owner:
            while owner.current:
                await in_time(anext(owner))
        await next_owner.claim_partition("orders", 0)  # its node has the same version
        proxy.cut()
        proxy.swallow_answers(False)
        await in_time(releasing)
        assert await other.group("billing").partition_owner("orders", 0) == next_owner


async def test_calls_that_wait_when_the_session_ends_say_so(proxy, through):
    async with Registry(through, session_timeout_ms=TIMEOUT_MS) as registry:
        await registry.group("billing").create()
        proxy.swallow()
        calls = [registry.group("billing").commit_offset("orders", n, n) for n in range(20)]
        results = await in_time(asyncio.gather(*calls, return_exceptions=True))
        assert {type(each) for each in results} == {SessionLost}


@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_stopped_server_ends_sessions_and_a_new_one_begins_empty(own_zookeeper, is_killed):
    servers = own_zookeeper.servers
    async with Registry(servers, session_timeout_ms=TIMEOUT_MS) as registry:
        await a_member(registry)
        watches = [await registry.group("billing").watch_instances()]
        await registry.group("billing").commit_offset("orders", 0, 7)
        os.kill(own_zookeeper.pid, signal.SIGKILL if is_killed else signal.SIGSTOP)
        await in_time(registry.wait_lost())
        if not is_killed:
            os.kill(own_zookeeper.pid, signal.SIGCONT)
        await watchers_end(watches)
        await every_object_says_so(registry)
    own_zookeeper.stop()
    await asyncio.to_thread(own_zookeeper.start)
    async with Registry(servers, session_timeout_ms=TIMEOUT_MS) as registry:
        await is_gone(registry)
        assert await registry.group("billing").fetch_offset("orders", 0) == 7  # it was durable


async def test_a_restarted_server_finds_a_session_that_still_lives(own_zookeeper):
    async with Registry(own_zookeeper.servers, session_timeout_ms=20_000) as registry:
        instance = await a_member(registry)
        own_zookeeper.stop()
        await asyncio.to_thread(own_zookeeper.start)
        assert await in_time(instance.registered())
        assert await registry.group("billing").partition_owner("orders", 0) == instance


async def test_a_process_stopped_for_longer_than_its_session_learns_it_first_thing(servers, other):
    program = Path(__file__).with_name("session_holder.py")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(program),
        servers,
        str(TIMEOUT_MS),
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert await in_time(process.stdout.readline()) == b"holds\n"
        process.stdin.write(b"\n")
        assert await in_time(process.stdout.readline()) == b"registered True\n"
        process.send_signal(signal.SIGSTOP)
        await is_gone(other)
        await other.group("billing").instance("b").claim_partition("orders", 0)
        process.stdin.write(b"\n")
        process.send_signal(signal.SIGCONT)
        assert await in_time(process.stdout.readline()) == b"SessionLost\n"
        assert await in_time(process.wait()) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    owner = await other.group("billing").partition_owner("orders", 0)
    assert owner == other.group("billing").instance("b")


# --- with reregister ------------------------------------------------------------------------------


async def test_if_asked_a_new_session_has_what_the_lost_one_had(proxy, through, other):
    async with Registry(through, session_timeout_ms=TIMEOUT_MS, reregister=True) as registry:
        instance = await a_member(registry)
        released = registry.group("billing").instance("gone")
        await released.register(["orders"])
        await released.claim_partition("orders", 5)
        await released.release_partition("orders", 5)
        await released.deregister()
        watch = await registry.group("billing").watch_instances()
        for _ in range(2):
            renewed = asyncio.ensure_future(registry.wait_renewed())
            await asyncio.sleep(0)
            proxy.swallow()
            await in_time(registry.wait_lost())
            await watchers_end([watch])
            await is_gone(other)
            proxy.swallow(False)
            kept, refused = await in_time(renewed)
            assert [each.rpartition("/consumers/")[2] for each in kept] == [
                "billing/ids/a",
                "billing/owners/orders/0",
            ]
            assert refused == ()
            assert await instance.registered()
            watch = await registry.group("billing").watch_instances()
    await is_gone(other)


async def test_what_another_has_by_then_is_not_taken_from_it(proxy, through, other):
    async with Registry(through, session_timeout_ms=TIMEOUT_MS, reregister=True) as registry:
        instance = await a_member(registry)
        renewed = asyncio.ensure_future(registry.wait_renewed())
        await asyncio.sleep(0)
        proxy.swallow()
        await is_gone(other)
        theirs = other.group("billing").instance("b")
        await theirs.claim_partition("orders", 0)
        proxy.swallow(False)
        kept, refused = await in_time(renewed)
        assert [each.rpartition("/")[2] for each in kept] == ["a"]
        assert [each.rpartition("/consumers/")[2] for each in refused] == [
            "billing/owners/orders/0"
        ]
        assert await instance.registered()
        assert await registry.group("billing").partition_owner("orders", 0) == theirs
        # nobody reads it for us any more, so the next session leaves it, although it is free
        renewed = asyncio.ensure_future(registry.wait_renewed())
        await asyncio.sleep(0)
        proxy.swallow()
        await in_time(registry.wait_lost())
        await theirs.release_partition("orders", 0)
        proxy.swallow(False)
        kept, refused = await in_time(renewed)
        assert [each.rpartition("/")[2] for each in kept] == ["a"]
        assert refused == ()
        assert await registry.group("billing").partition_owner("orders", 0) is None


async def test_what_the_servers_still_keep_for_the_lost_session_is_taken_over(
    proxy, through, zookeeper, other
):
    async with Registry(through, session_timeout_ms=20_000, reregister=True) as registry:
        instance = await a_member(registry)
        before = registry._link.session().id
        renewed = asyncio.ensure_future(registry.wait_renewed())
        await asyncio.sleep(0)
        proxy.swallow()
        # this side gives up long before the servers do
        registry._link.session()._lose("a test says so")
        proxy.swallow(False)
        kept, refused = await in_time(renewed)
        assert (len(kept), refused) == (2, ())
        assert registry._link.session().id != before
        assert await instance.registered()
        assert await other.group("billing").partition_owner("orders", 0) is not None


async def test_closing_a_registry_without_a_server_ends(proxy, through):
    registry = await Registry(through, session_timeout_ms=TIMEOUT_MS, reregister=True).open()
    await a_member(registry)
    proxy.refuse()
    await in_time(registry.wait_lost())
    await in_time(registry.close())
