"""The tables of the functions that handle requests, by type of request and type of group. Each
function adds itself with ``handles``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

from groupkeeper.coordinator.core.declarations import AnyRequest, GroupRequest, ShardRoute
from groupkeeper.coordinator.core.group_type import GroupType

Handler: TypeAlias = Callable[[Any, Any, Any, Any], None]
"""A function of (shard, group, request, ticket)."""

_F = TypeVar("_F", bound=Callable[..., None])

HANDLERS: Final[dict[GroupType, dict[type, Handler]]] = {each: {} for each in GroupType}
"""Type of group -> type of request -> the function that handles such a request."""

ABSENT_GROUP: Final[dict[type, Handler]] = {}
"""Type of request -> the function for a group that does not exist. The function gets None as the
group."""

FUNCTION_OF: Final[dict[type, Callable[[Any, Any, Any], None]]] = {}
"""Type of request -> function of (shard, request, ticket), for the cluster shard."""


def handles(kind: type[AnyRequest], *types: GroupType) -> Callable[[_F], _F]:
    """Return a decorator that registers a function for requests of a type, and for groups of these
    types.

    Without types of groups, the function handles every group, and also requests about an absent
    group. With types, it handles an absent group only if ``if_absent`` of the request is among
    them.

    Raises TypeError if the type of requests does not declare everything that the runtime needs.
    """
    missing = [name for name in AnyRequest.__annotations__ if not hasattr(kind, name)]
    if missing:
        raise TypeError(f"{kind.__name__} does not declare {', '.join(missing)}")

    def mark(function: _F) -> _F:
        if kind.route is ShardRoute.CLUSTER:
            FUNCTION_OF[kind] = function
            return function
        for group_type in types or GroupType:
            HANDLERS[group_type][kind] = function
        if not types or (issubclass(kind, GroupRequest) and kind.if_absent in types):
            ABSENT_GROUP[kind] = function
        return function

    return mark
