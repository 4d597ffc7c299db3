"""Routes: which handler answers an API key and version, and who may ask.

A listener has its own ``Routes``. They are the one place where a request is authorized. A route
names the operation that the client must be allowed to do, in Kafka's words for access control. If
it is not allowed, the same handler renders the error, in the version asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests import ListGroups, ListGroupsResult, Request
from groupkeeper.coordinator.handlers import api_versions
from groupkeeper.coordinator.handlers.exchange import Exchange
from groupkeeper.coordinator.handlers.services import Coordinator, Services
from groupkeeper.coordinator.handlers.session import Session
from groupkeeper.coordinator.runtime.listing import TakesGroups
from groupkeeper.coordinator.runtime.tickets import Ticket
from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.protocol.versions import API_BY_KEY, ApiKey

Handle: TypeAlias = Callable[[Exchange, Services], None]
"""Reads the body, and answers or submits. Raises ProtocolError on a body that cannot be."""


class Operation(IntEnum):
    """What is done to a resource (Kafka's AclOperation)."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11


class Resource(IntEnum):
    """What it is done to (Kafka's ResourceType)."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4


Authorize: TypeAlias = Callable[[Session, Operation, Resource], bool]
"""Says whether who speaks may do this."""

DENIED: Final = {
    Resource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    Resource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    Resource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}
"""What is answered to who may not."""


class Route(NamedTuple):
    """Who answers an API, and what one must be allowed to do to ask it; None: nothing."""

    handle: Handle
    operation: Operation | None = None
    resource: Resource | None = None


def not_served(exchange: Exchange, _services: Services) -> None:
    """Close the connection, as Kafka does: there is no answer that its client could read."""
    api = API_BY_KEY.get(exchange.key)
    if api is None:
        raise ProtocolError("unknown_api", f"the API key {exchange.key} is not served")
    message = f"{api.name} v{exchange.version} is not served"
    raise ProtocolError("unsupported_version", message)


class Routes(dict[tuple[int, int], Handle]):
    """By (key, version): what a connection looks up. Every key and version leads somewhere."""

    def __init__(
        self,
        routes: Mapping[ApiKey, Route],
        authorize: Authorize | None = None,
        fallback: Handle = not_served,
    ) -> None:
        """Without ``authorize`` everyone may do everything, and nothing stands before a handler.

        ``fallback`` is for keys and versions that are not in ``routes``; its exchange has the whole
        frame, and its offset says where the client id ends.
        """
        super().__init__()
        self._fallback = fallback
        for key, route in routes.items():
            api = API_BY_KEY[key]
            handle = route.handle if authorize is None else _asking_first(route, authorize)
            for version in range(api.lowest_served, api.max_version + 1):
                self[int(key), version] = handle

    def __missing__(self, asked: tuple[int, int]) -> Handle:
        """Find who answers what is not served: ApiVersions is answered in any version, so that a
        newer client learns what to fall back to (RequestContext.parseRequest).
        """
        if asked[0] == ApiKey.API_VERSIONS:
            return api_versions.handle_unsupported
        return self._fallback


def _asking_first(route: Route, authorize: Authorize) -> Handle:
    handle, operation, resource = route
    if operation is None or resource is None:
        return handle

    def ask_first(exchange: Exchange, services: Services) -> None:
        if not authorize(exchange.channel.session, operation, resource):
            services = _denying(services, DENIED[resource])
        handle(exchange, services)

    return ask_first


def _denying(services: Services, error: ErrorCode) -> Services:
    """Return what a handler is given that must answer with an error."""
    return replace(services, denied=error, coordinator=_Denying(services.coordinator, error))


class _Denying:
    """The coordinator for who may not ask it: every answer is the error."""

    def __init__(self, coordinator: Coordinator, error: ErrorCode) -> None:
        self.group_configs = coordinator.group_configs
        self._error = error

    def submit(self, request: Request, ticket: Ticket) -> None:
        ticket.resolve(request.refused(self._error))

    def submit_listing(self, _request: ListGroups, taker: TakesGroups) -> Callable[[], None]:
        """Tell of no group: Kafka lists those that may be seen, and says nothing of the others."""
        taker.resolve(ListGroupsResult(ErrorCode.NONE))
        return _nothing


def _nothing() -> None:
    pass
