"""Listeners that come and go with the brokers of the upstream, over a real coordinator."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

from groupkeeper.coordinator.gateway.brokers import UpstreamCluster
from groupkeeper.coordinator.gateway.gateway import Gateway
from groupkeeper.coordinator.gateway.security import Security
from groupkeeper.coordinator.gateway.settings import GatewaySettings
from groupkeeper.coordinator.gateway.splitting import Division
from groupkeeper.coordinator.handlers.services import Endpoint, Services
from groupkeeper.coordinator.server.listener import Listener
from tests.helpers.runtime.coordinator import World, a_coordinator
from tests.helpers.runtime.virtual_loop import turns, virtual_time
from tests.helpers.storage.faulty_storage import FaultyStorage, fail
from tests.helpers.wire.relays import KAFKA_VERSIONS

OWN_PORT = 9092


class FakeBrokers:
    """The upstream as the test says."""

    def __init__(self) -> None:
        self.cluster: UpstreamCluster | None = None
        self.observers: list[Callable[[UpstreamCluster], None]] = []
        self.answered_s: float | None = None

    def set(self, *broker_ids: int, cluster_id: str = "upstream") -> None:
        at = {broker_id: Endpoint(f"b{broker_id}", 9092) for broker_id in broker_ids}
        self.cluster = UpstreamCluster(
            cluster_id=cluster_id,
            brokers=at,
            controller=min(broker_ids),
            versions=dict.fromkeys(broker_ids, KAFKA_VERSIONS),
            features={},
        )
        self.answered_s = asyncio.get_running_loop().time()
        for observer in self.observers:
            observer(self.cluster)

    def pick(self) -> int | None:
        return None if self.cluster is None else min(self.cluster.brokers)

    def ask_now(self) -> None:
        pass


class FakeSocket:
    def __init__(self, port: int) -> None:
        self.port = port
        self.is_closed = False

    def getsockname(self) -> tuple[str, int]:
        return ("127.0.0.1", self.port)

    def listen(self) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True


class FakeServer:
    """Records which listeners are open."""

    def __init__(self) -> None:
        self.open: dict[str, int] = {}
        self.refused: set[int] = set()

    async def start(self, sock: FakeSocket, listener: Listener, make: Any = None) -> None:
        if sock.port in self.refused:
            raise OSError("no descriptors")
        self.open[listener.name] = sock.port

    def end(self, listener: Listener) -> None:
        del self.open[listener.name]


class Site:
    """A gateway over a coordinator, on a machine whose ports the test may take."""

    def __init__(self, world: World, ports: range, node_id: int) -> None:
        self.brokers = FakeBrokers()
        self.server = FakeServer()
        self.taken: set[int] = set()
        settings = GatewaySettings(
            bootstrap=(), ports=ports, listen_host="127.0.0.1", security=Security()
        )
        coordinator = world.coordinator
        assert coordinator.topics is not None
        services = Services(coordinator=coordinator, topics=coordinator.topics, node_id=node_id)
        self.gateway = Gateway(
            settings,
            services,
            coordinator.upstream_record,
            cast("Any", self.brokers),
            lambda *_: Division(b"", None),
            bind=self._bind,
        )
        self.gateway.start(cast("Any", self.server), cast("socket.socket", FakeSocket(OWN_PORT)))

    def _bind(self, _host: str, port: int) -> socket.socket | None:
        return None if port in self.taken else cast("socket.socket", FakeSocket(port))

    def shown(self) -> Mapping[int, int]:
        view = self.gateway.addresses.view("127.0.0.1")
        return {broker_id: at.port for broker_id, at in view.brokers.items()}

    async def settle(self) -> None:
        await turns(50)


@asynccontextmanager
async def a_site(
    storage: FaultyStorage | None = None,
    ports: range = range(9100, 9103),
    node_id: int = 1_000_000,
    taken: Collection[int] = (),
) -> AsyncIterator[Site]:
    async with a_coordinator(storage or FaultyStorage()) as world:
        site = Site(world, ports, node_id)
        site.taken |= {*taken}
        await site.settle()
        yield site
        await site.gateway.stop()


@virtual_time
async def test_nobody_is_served_before_the_first_metadata() -> None:
    async with a_site() as site:
        assert site.server.open == {}
        assert site.gateway.not_ready == "no broker of the upstream has answered yet"
        site.brokers.set(1, 2)
        await site.settle()
        assert site.server.open == {"PLAINTEXT": OWN_PORT, "BROKER-1": 9100, "BROKER-2": 9101}
        assert site.shown() == {1: 9100, 2: 9101}
        assert site.gateway.not_ready is None


@virtual_time
async def test_brokers_keep_their_ports_over_a_restart_and_come_and_go() -> None:
    storage = FaultyStorage()
    async with a_site(storage) as site:
        site.brokers.set(1, 2)
        await site.settle()
        site.brokers.set(2)
        await site.settle()
        assert site.shown() == {2: 9101}
        assert site.server.open == {"PLAINTEXT": OWN_PORT, "BROKER-2": 9101}
    async with a_site(storage) as site:
        assert "PLAINTEXT" in site.server.open, "groups are served without a broker"
        assert site.shown() == {}
        assert site.gateway.not_ready is None
        site.brokers.set(3, 2, 1)
        await site.settle()
        assert site.shown() == {1: 9100, 2: 9101, 3: 9102}


@virtual_time
async def test_known_brokers_listen_before_our_own_node_and_without_the_upstream() -> None:
    storage = FaultyStorage()
    async with a_site(storage) as site:
        site.brokers.set(1, 2)
        await site.settle()
    async with a_site(storage) as site:
        assert [*site.server.open] == ["BROKER-1", "BROKER-2", "PLAINTEXT"]
        assert site.server.open["BROKER-2"] == 9101
        assert site.shown() == {}, "the upstream may have it no longer"
        site.brokers.set(2, 3)
        await site.settle()
        assert site.server.open == {"PLAINTEXT": OWN_PORT, "BROKER-2": 9101, "BROKER-3": 9102}
        assert site.shown() == {2: 9101, 3: 9102}
        assert site.gateway.targets.keys() == {2, 3}
        assert site.gateway.targets[2].endpoint == Endpoint("b2", 9092)
        services = {front.listener.services for front in site.gateway.fronts.values()}
        assert {each.cluster_id for each in services if each} == {"upstream"}


@virtual_time
async def test_our_own_node_listens_although_a_known_broker_cannot() -> None:
    storage = FaultyStorage()
    async with a_site(storage) as site:
        site.brokers.set(1, 2)
        await site.settle()
    async with a_coordinator(storage) as world:
        site = Site(world, range(9100, 9103), 1_000_000)
        site.taken, site.server.refused = {9100}, {9101}
        await site.settle()
        assert site.server.open == {"PLAINTEXT": OWN_PORT}
        site.taken, site.server.refused = set(), set()
        site.brokers.set(1, 2)
        await site.settle()
        assert site.shown() == {1: 9100, 2: 9101}
        await site.gateway.stop()


@virtual_time
async def test_replies_with_addresses_are_rewritten_also_if_the_request_is_divided() -> None:
    async with a_site() as site:
        site.brokers.set(1)
        await site.settle()
        change = site.gateway.fronts[1]._change
        find_coordinator, metadata, fetch = 10, 3, 1
        assert change("127.0.0.1", find_coordinator, 4) is not None
        assert change("127.0.0.1", metadata, 12) is not None
        assert change("127.0.0.1", fetch, 12) is None


@virtual_time
async def test_a_full_range_is_logged_and_tried_again() -> None:
    async with a_site(ports=range(9100, 9102)) as site:
        assert site.gateway.missing_brokers == ""
        site.brokers.set(1, 2, 3)
        await site.settle()
        assert site.shown() == {1: 9100, 2: 9101}
        assert site.gateway.not_ready is None
        assert site.gateway.missing_brokers == (
            "brokers without a listener: 3 (no port of upstream.ports (9100-9101) is free)"
        )
        site.brokers.set(1, 2)
        await site.settle()
        assert site.gateway.missing_brokers == ""


@virtual_time
async def test_the_broker_that_is_gone_for_longest_loses_its_port_if_none_is_left() -> None:
    storage = FaultyStorage()
    async with a_site(storage, ports=range(9100, 9103)) as site:
        site.brokers.set(1, 2, 3)
        await site.settle()
        await asyncio.sleep(1)
        site.brokers.set(1, 2)  # 3 goes first
        await site.settle()
        await asyncio.sleep(1)
        site.brokers.set(2)
        await site.settle()
        site.brokers.set(2, 4)
        await site.settle()
        assert site.shown() == {2: 9101, 4: 9102}
        site.brokers.set(2, 3, 4)
        await site.settle()
        assert site.shown() == {2: 9101, 4: 9102, 3: 9100}
        site.brokers.set(1, 2, 3, 4)
        await site.settle()
        assert site.shown() == {2: 9101, 4: 9102, 3: 9100}, "no broker that is there loses its port"
        assert site.gateway.missing.keys() == {1}
    async with a_site(storage, ports=range(9100, 9103)) as site:
        site.brokers.set(2, 3, 4)
        await site.settle()
        assert site.shown() == {2: 9101, 4: 9102, 3: 9100}, "it is durable"


@virtual_time
async def test_a_broker_of_an_earlier_run_is_gone_for_longest() -> None:
    storage = FaultyStorage()
    async with a_site(storage, ports=range(9100, 9102)) as site:
        site.brokers.set(1, 2)
        await site.settle()
    async with a_site(storage, ports=range(9100, 9102)) as site:
        site.brokers.set(1)
        await site.settle()
        await asyncio.sleep(1)
        site.brokers.set(3)
        await site.settle()
        assert site.shown() == {3: 9101}


@virtual_time
async def test_a_socket_is_closed_if_its_listener_cannot_be_opened() -> None:
    async with a_site() as site:
        start = site.server.start
        sockets: list[FakeSocket] = []

        async def refuse(sock: FakeSocket, listener: Listener, make: Any = None) -> None:
            sockets.append(sock)
            raise OSError("no descriptors")

        site.server.start = refuse  # type: ignore[method-assign]
        site.brokers.set(1)
        await site.settle()
        assert site.shown() == {}
        assert [sock.is_closed for sock in sockets if sock.port != OWN_PORT] == [True]
        site.server.start = start  # type: ignore[method-assign]
        await asyncio.sleep(6)
        assert site.shown() == {1: 9100}


@virtual_time
async def test_a_port_that_another_program_has_is_left_out_and_a_durable_one_is_tried_again() -> (
    None
):
    storage = FaultyStorage()
    async with a_site(storage) as site:
        site.taken = {9100}
        site.brokers.set(1)
        await site.settle()
        assert site.shown() == {1: 9101}
    async with a_site(storage, taken={9101}) as site:
        site.brokers.set(1)
        await site.settle()
        assert site.shown() == {}, "clients know it at 9101"
        assert "1 (port 9101 is taken)" in site.gateway.missing_brokers
        site.taken = set()
        await asyncio.sleep(6)
        assert site.shown() == {1: 9101}


@virtual_time
async def test_a_port_outside_a_changed_range_is_replaced() -> None:
    storage = FaultyStorage()
    async with a_site(storage) as site:
        site.brokers.set(1)
        await site.settle()
    async with a_site(storage, ports=range(9200, 9300)) as site:
        site.brokers.set(1)
        await site.settle()
        assert site.shown() == {1: 9200}


@virtual_time
async def test_a_broker_with_the_id_of_our_own_node_is_refused_by_name() -> None:
    async with a_site(node_id=2) as site:
        site.brokers.set(1, 2)
        await site.settle()
        assert site.server.open == {}
        assert "kafka.node_id is 2" in (site.gateway.not_ready or "")
        assert "b2:9092" in (site.gateway.not_ready or "")
        site.brokers.set(1)
        await site.settle()
        assert site.gateway.not_ready is None
        assert site.shown() == {1: 9100}


@virtual_time
async def test_the_groups_of_one_cluster_are_not_served_in_front_of_another() -> None:
    storage = FaultyStorage()
    async with a_site(storage) as site:
        site.brokers.set(1, cluster_id="first")
        await site.settle()
    async with a_site(storage) as site:
        site.brokers.set(1, cluster_id="second")
        await site.settle()
        assert site.shown() == {}
        assert "cluster second" in (site.gateway.not_ready or "")
        assert "cluster first" in (site.gateway.not_ready or "")


@virtual_time
async def test_a_port_is_durable_before_a_client_sees_it() -> None:
    storage = FaultyStorage()
    async with a_coordinator(storage) as world:
        site = Site(world, range(9100, 9103), 1_000_000)
        await site.settle()
        world.storage.script("append", fail(), fail())
        site.brokers.set(1)
        await site.settle()
        assert site.shown() == {}
        await asyncio.sleep(10)
        assert site.shown() == {1: 9100}
        assert world.coordinator.upstream_record.ports == {1: 9100}
        await site.gateway.stop()


@virtual_time
async def test_a_broker_whose_port_cannot_be_stored_is_named_with_the_reason() -> None:
    async with a_coordinator(FaultyStorage()) as world:
        site = Site(world, range(9100, 9103), 1_000_000)
        site.brokers.set(1)
        await site.settle()
        assert site.gateway.missing_brokers == ""
        world.storage.script("append", fail(), fail())
        site.brokers.set(1, 2)
        await site.settle()
        assert site.shown() == {1: 9100}
        assert "2 (its port 9101 is not in the store yet)" in site.gateway.missing_brokers
        await asyncio.sleep(10)
        assert site.shown() == {1: 9100, 2: 9101}
        assert site.gateway.missing_brokers == ""
        await site.gateway.stop()
