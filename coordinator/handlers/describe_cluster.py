"""DescribeCluster (60): one broker, ourselves (docs/spec/cluster.md#describe-cluster).

| version | change |
| --- | --- |
| 1 | endpoint type: 1 brokers, 2 controllers; we are no controller |
| 2 | fenced brokers, of which there are none |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.handlers.brokers import CLUSTER_OPERATIONS, NO_OPERATIONS, endpoint
from groupkeeper.protocol.writer import Row

if TYPE_CHECKING:
    from groupkeeper.coordinator.handlers.exchange import Exchange
    from groupkeeper.coordinator.handlers.services import Services

BROKERS, CONTROLLERS = 1, 2


def handle(exchange: Exchange, services: Services) -> None:
    """Answer at once, with this server as the only broker. Other types of endpoints are refused."""
    request = exchange.read(services)
    endpoint_type = request.endpoint_type if exchange.version >= 1 else BROKERS
    if endpoint_type != BROKERS:
        exchange.send(_refuse(exchange, endpoint_type))
        return
    here = endpoint(exchange, services)
    broker = Row(
        broker_id=services.node_id, host=here.host, port=here.port, rack=None, is_fenced=False
    )
    exchange.send(
        exchange.write(
            error_code=ErrorCode.NONE,
            error_message=None,
            endpoint_type=BROKERS,
            cluster_id=services.cluster_id,
            controller_id=services.node_id,
            brokers=[broker],
            cluster_authorized_operations=CLUSTER_OPERATIONS
            if request.include_cluster_authorized_operations
            else NO_OPERATIONS,
        )
    )


def _refuse(exchange: Exchange, endpoint_type: int) -> bytes:
    exchange.error = (
        ErrorCode.MISMATCHED_ENDPOINT_TYPE
        if endpoint_type == CONTROLLERS
        else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
    )
    return exchange.write(
        error_code=exchange.error,
        error_message=f"endpoint type {endpoint_type} is not served here",
        endpoint_type=BROKERS,  # also in a refusal, as in Kafka
        cluster_id="",
        controller_id=-1,
        brokers=(),
        cluster_authorized_operations=NO_OPERATIONS,
    )
