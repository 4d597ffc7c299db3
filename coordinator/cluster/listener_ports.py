"""The durable ports of the listeners of upstream brokers (gateway mode).

Ports are records in the cluster shard. This store has only the durable ones. It knows nothing of
the runtime, which passes the records to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from groupkeeper.coordinator.core.records import ListenerPort, Record


class ListenerPorts:
    """The port of each upstream broker that ever had a listener."""

    def __init__(self) -> None:
        self.by_broker: dict[int, int] = {}
        """Broker id -> port."""

    def replace(self, ports: Mapping[int, int]) -> None:
        """Replace all ports after a load."""
        self.by_broker = dict(ports)

    def apply(self, records: Iterable[Record]) -> None:
        """Apply durable records of the cluster shard."""
        for record in records:
            if isinstance(record, ListenerPort):
                if record.port:
                    self.by_broker[record.broker_id] = record.port
                else:
                    self.by_broker.pop(record.broker_id, None)
