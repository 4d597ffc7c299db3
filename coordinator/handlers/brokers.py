"""This server as clients see it: a broker with an address, and the rights of a client on it
(docs/spec/cluster.md#metadata).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from groupkeeper.coordinator.handlers.services import Endpoint

if TYPE_CHECKING:
    from groupkeeper.coordinator.handlers.exchange import Exchange
    from groupkeeper.coordinator.handlers.services import Services

CLUSTER_OPERATIONS = 8096
"""All rights on a cluster: CREATE 5, ALTER 7, DESCRIBE 8, CLUSTER_ACTION 9, DESCRIBE_CONFIGS 10,
ALTER_CONFIGS 11, IDEMPOTENT_WRITE 12 as a bit field (AclEntry.supportedOperations)."""

TOPIC_OPERATIONS = 3576
"""All rights on a topic: READ 3, WRITE 4, CREATE 5, DELETE 6, ALTER 7, DESCRIBE 8, DESCRIBE_CONFIGS
10, ALTER_CONFIGS 11."""

GROUP_OPERATIONS = 3400
"""All rights on a group: READ 3, DELETE 6, DESCRIBE 8, DESCRIBE_CONFIGS 10, ALTER_CONFIGS 11."""

NO_OPERATIONS = -(2**31)
"""The value in an answer if the request did not ask for the authorized operations."""


def endpoint(exchange: Exchange, services: Services) -> Endpoint:
    """Return the address of this server for the client. If none is configured, it is the address
    that the client connected to.
    """
    return services.advertised or Endpoint(*exchange.channel.local_address())
