"""DescribeCluster (60): one broker, ourselves (spec 5.2).

| version | change |
| --- | --- |
| 1 | endpoint type: 1 brokers, 2 controllers; we are no controller |
| 2 | fenced brokers, of which there are none |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coordinator.core.errors import ErrorCode
from coordinator.handlers.brokers import CLUSTER_OPERATIONS, endpoint
from coordinator.handlers.packing import NO_OPERATIONS
from coordinator.handlers.reading import read
from protocol.codec import respond

if TYPE_CHECKING:
    from coordinator.handlers.exchange import Exchange
    from coordinator.handlers.services import Services

BROKERS, CONTROLLERS = 1, 2


def handle(exchange: Exchange, services: Services) -> None:
    """Answer at once."""
    request = read(exchange, services)
    endpoint_type = request.endpoint_type if exchange.version >= 1 else BROKERS
    if endpoint_type == BROKERS:
        here = endpoint(exchange, services)
        broker = {
            "broker_id": services.node_id,
            "host": here.host,
            "port": here.port,
            "rack": None,
            "is_fenced": False,
        }
        answer: dict[str, Any] = {
            "error_code": ErrorCode.NONE,
            "error_message": None,
            "cluster_id": services.cluster_id,
            "controller_id": services.node_id,
            "brokers": [broker],
            "cluster_authorized_operations": CLUSTER_OPERATIONS
            if request.include_cluster_authorized_operations
            else NO_OPERATIONS,
        }
    else:
        wrong = endpoint_type != CONTROLLERS
        answer = {
            "error_code": ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            if wrong
            else ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "error_message": f"endpoint type {endpoint_type} is not served here",
            "cluster_id": "",
            "brokers": [],
        }
    exchange.error = answer["error_code"]
    exchange.send(
        respond(
            exchange.key,
            exchange.version,
            exchange.correlation_id,
            endpoint_type=BROKERS,  # in a refusal too, as Kafka's is
            **answer,
        )
    )
