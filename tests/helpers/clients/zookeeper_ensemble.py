"""Three real ZooKeeper servers that form an ensemble, on free loopback ports."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.clients.real_zookeeper import RealZooKeeper
from tests.helpers.daemon.daemon import free_port

SERVERS = 3
QUORUM_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


class ZooKeeperPeer(RealZooKeeper):
    """One server of an ensemble."""

    def __init__(self, directory: Path, number: int, peers: dict[str, str | int]) -> None:
        # In ticks, which are 100 ms: a busy machine needs some seconds for an election.
        super().__init__(directory, {**peers, "initLimit": 100, "syncLimit": 50})
        self._command[-1] = QUORUM_MAIN
        (directory / "data" / "myid").write_text(f"{number}\n")


class ZooKeeperEnsemble:
    """The servers. Any two of them serve clients."""

    def __init__(self, directory: Path) -> None:
        numbers = range(1, SERVERS + 1)
        peers: dict[str, str | int] = {
            f"server.{number}": f"127.0.0.1:{free_port()}:{free_port()}" for number in numbers
        }
        self.peers = [ZooKeeperPeer(directory / str(n), n, peers) for n in numbers]

    @property
    def servers(self) -> str:
        """Return HOST:PORT of each server, for clients."""
        return ",".join(peer.servers for peer in self.peers)

    def start(self) -> ZooKeeperEnsemble:
        """Start all servers, and return when each answers."""
        for peer in self.peers:
            peer.launch()
        for peer in self.peers:
            peer.wait()
        return self

    def the(self, mode: str) -> ZooKeeperPeer:
        """Return the leader, or a follower."""
        return next(peer for peer in self.peers if peer.mode() == mode)

    def stop(self) -> None:
        """End all servers."""
        for peer in self.peers:
            peer.stop()
