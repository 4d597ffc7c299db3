"""What every request to a shard declares of itself, and what every result can do.

The runtime asks for these declarations and knows no request by its name. How one is added:
docs/how-to/add-an-api.md.
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar, Self, TypeAlias

import msgspec

from groupkeeper.coordinator.core.errors import ErrorCode


class ShardRoute(Enum):
    """Which shard takes a request."""

    GROUP = "that of its group"
    EVERY = "every shard of groups, each for itself"
    CLUSTER = "the cluster shard"


class AnyResult(msgspec.Struct, frozen=True):
    """An answer: the error of the whole, and what else is told."""

    error: ErrorCode

    def replaced(self, code: ErrorCode) -> Self:
        """Return what is answered instead when this may no longer be told."""
        return type(self)(code)


Result: TypeAlias = AnyResult | ErrorCode
"""A bare code answers a request that has nothing else to tell; it can do what a result can."""


class AnyRequest(msgspec.Struct, frozen=True):
    """A request to a shard. Each type declares all of these, or the core does not take it
    (``handling.handles``).
    """

    result: ClassVar[type[AnyResult] | type[ErrorCode]]
    """What answers it; made of a code alone where it is refused."""
    route: ClassVar[ShardRoute]
    parks: ClassVar[bool]
    """Its answer may be left for a later step. Only a request that parks has its type of result."""
    reads: ClassVar[bool]
    """It writes nothing, and its step answers it alone."""
    waits: ClassVar[bool]
    """Each of its answers waits until what the shard wrote before is durable. False: some promise
    nothing that a crash takes back (``Reply.waits``).
    """
    while_loading: ClassVar[ErrorCode]
    """What a shard that is LOADING answers (docs/design.md#loading)."""
    when_full: ClassVar[ErrorCode | None]
    """What is answered when too much waits for the storage: a code that makes clients look the
    coordinator up again after their back-off, and repeat the request. None: it is never refused.
    """

    def refused(self, code: ErrorCode) -> Result:
        """Return the result that refuses the whole request."""
        return self.result(code)

    def loading_answer(self) -> Result:
        """Return what a LOADING shard answers."""
        return self.refused(self.while_loading)


class GroupRequest(AnyRequest, frozen=True):
    """A request about one group."""

    group_id: str
    route = ShardRoute.GROUP
