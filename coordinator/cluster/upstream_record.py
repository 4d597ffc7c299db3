"""The durable facts about the upstream cluster (gateway mode): its id, and the ports of the
listeners of its brokers.

They are records in the cluster shard. This store knows nothing of the runtime, which passes the
records to it.
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
        """Broker id -> port, of each broker that ever had a listener."""

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
