"""The durable facts about the upstream cluster (gateway mode): its id, and the ports of the
listeners of its brokers.

They are records in the cluster shard. The runtime passes these records to this store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from groupkeeper.coordinator.core.records import ListenerPort, Record, UpstreamId


class UpstreamRecord:
    """The durable facts of the upstream cluster."""

    def __init__(self) -> None:
        self.cluster_id = ""
        """The id of the cluster whose offsets are stored here; "" before the first metadata."""
        self.ports: dict[int, int] = {}
        """Broker id -> the port of its listener. A broker that is gone keeps its port until another
        broker needs the port.
        """

    def replace(self, ports: Mapping[int, int], cluster_id: str) -> None:
        """Replace everything after a load."""
        self.ports = dict(ports)
        self.cluster_id = cluster_id

    def apply(self, records: Iterable[Record]) -> None:
        """Apply durable records of the cluster shard."""
        for record in records:
            if isinstance(record, UpstreamId):
                self.cluster_id = record.cluster_id
            elif isinstance(record, ListenerPort):
                if record.port:
                    self.ports[record.broker_id] = record.port
                else:
                    self.ports.pop(record.broker_id, None)
