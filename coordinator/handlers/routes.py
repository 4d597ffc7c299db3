"""Maps an API key and version to its handler, and checks the client's permission.

A listener has its own ``Routes``. Requests are authorized only here. A route names the operation
that the client must be allowed to do, in Kafka's words for access control. If the client is not
allowed to do it, the same handler renders the error in the version of the request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.requests.admin import ListGroups, ListGroupsResult
from groupkeeper.coordinator.core.requests.request import Request
from groupkeeper.coordinator.handlers import api_versions
from groupkeeper.coordinator.handlers.exchange import Exchange
from groupkeeper.coordinator.handlers.services import Coordinator, Services
from groupkeeper.coordinator.handlers.session import Session
from groupkeeper.coordinator.runtime.listing import GroupsTicket
from groupkeeper.coordinator.runtime.tickets import Ticket
from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.protocol.versions import API_BY_KEY, KNOWN_API_BY_KEY, ApiKey

Handle: TypeAlias = Callable[[Exchange, Services], None]
"""Reads the body of a request, and answers it or submits it to the coordinator. Raises
ProtocolError if the body is malformed."""


class Operation(IntEnum):
    """The operation of a client on a resource (Kafka's AclOperation)."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11


class Resource(IntEnum):
    """The type of resource that needs a permission (Kafka's ResourceType)."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4


Authorize: TypeAlias = Callable[[Session, Operation, Resource], bool]
"""A function that returns True if the client of a session may do the operation on the resource."""

DENIED: Final = {
    Resource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    Resource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    Resource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}
"""The error for each type of resource, if the client has no permission."""


class Route(NamedTuple):
    """The handler of an API, and the permission that a client needs for it. If ``operation`` and
    ``resource`` are None, it needs none.
    """

    handle: Handle
    operation: Operation | None = None
    resource: Resource | None = None


def not_served(exchange: Exchange, _services: Services) -> None:
    """Raise ProtocolError. The connection is then closed, as in Kafka, because the client could
    read no answer.
    """
    api = API_BY_KEY.get(exchange.key)
    if api is None:
        raise ProtocolError("unknown_api", f"the API key {exchange.key} is not served")
    message = f"{api.name} v{exchange.version} is not served"
    raise ProtocolError("unsupported_version", message)


class Routes(dict[tuple[int, int], Handle]):
    """Handlers by (key, version), as a connection looks them up. Every key and version has one."""

    def __init__(
        self,
        routes: Mapping[ApiKey, Route],
        authorize: Authorize | None = None,
        fallback: Handle = not_served,
    ) -> None:
        """Without ``authorize`` every operation is allowed, and handlers are called directly.

        ``fallback`` handles the keys and versions that are not in ``routes``. In the exchange that
        it gets, ``frame`` is the whole frame, and ``body_at`` is the end of the client id.
        """
        super().__init__()
        self._fallback = fallback
        for key, route in routes.items():
            api = KNOWN_API_BY_KEY[key]
            handle = route.handle if authorize is None else _asking_first(route, authorize)
            for version in range(api.lowest_served, api.max_version + 1):
                self[int(key), version] = handle

    def __missing__(self, asked: tuple[int, int]) -> Handle:
        """Return the handler for a key or version that is not served. ApiVersions is answered in
        any version, so that a newer client learns our versions (RequestContext.parseRequest).
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
    """Return services that make a handler answer its request with this error."""
    return replace(services, denied=error, coordinator=_Denying(services.coordinator, error))


class _Denying:
    """Replaces the coordinator if the client has no permission. It answers every request with the
    error. A listing gets no groups.
    """

    def __init__(self, coordinator: Coordinator, error: ErrorCode) -> None:
        self.group_configs = coordinator.group_configs
        self._error = error

    def submit(self, request: Request, ticket: Ticket) -> None:
        ticket.resolve(request.refused(self._error))

    def submit_listing(self, _request: ListGroups, ticket: GroupsTicket) -> Callable[[], None]:
        """Answer with an empty list. Kafka lists only the permitted groups, without an error."""
        ticket.resolve(ListGroupsResult(ErrorCode.NONE))
        return _nothing


def _nothing() -> None:
    pass
