"""Which function of the core handles which request. Each function declares it with ``handles``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from groupkeeper.coordinator.core.declarations import AnyRequest

_F = TypeVar("_F", bound=Callable[..., None])

FUNCTION_OF: Final[dict[type, Callable[[Any, Any, Any], None]]] = {}
"""Type of request -> function of (shard, request, ticket)."""


def handles(kind: type[AnyRequest]) -> Callable[[_F], _F]:
    """Register the function that handles requests of a type. Raises TypeError if the type does not
    declare everything that the runtime needs.
    """
    missing = [name for name in AnyRequest.__annotations__ if not hasattr(kind, name)]
    if missing:
        raise TypeError(f"{kind.__name__} does not declare {', '.join(missing)}")

    def mark(function: _F) -> _F:
        FUNCTION_OF[kind] = function
        return function

    return mark
