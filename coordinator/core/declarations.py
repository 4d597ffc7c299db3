"""The base classes of requests to a shard and of their results.

Each type in ``requests`` declares, by class attributes, how the runtime must treat its requests. So
the runtime needs no code for single types. How to add a request: docs/how-to/add-an-api.md.
"""

# A class attribute that overrides a declaration is never assigned again.
# mypy: disable-error-code="mutable-override"
from __future__ import annotations

from enum import Enum
from typing import ClassVar, Self, TypeAlias

import msgspec

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.group_type import GroupType


class ShardRoute(Enum):
    """The rule that finds the shard of a request."""

    GROUP = "that of its group"
    EVERY = "every shard of groups, each for itself"
    ONE = "the shard of groups whose number it has"
    CLUSTER = "the cluster shard"


class AnyResult(msgspec.Struct, frozen=True):
    """An answer: the error of the whole request, and further fields."""

    error: ErrorCode

    def replaced(self, code: ErrorCode, loads_again: bool) -> Self:
        """Return the answer to send instead of this one, if the shard is dropped before this one is
        sent. ``loads_again`` is True if this process will load the shard again.
        """
        return type(self)(code)


Result: TypeAlias = AnyResult | ErrorCode
"""A bare code answers a request without further fields. It has the methods of a result."""


class AnyRequest(msgspec.Struct, frozen=True):
    """A request to a shard. Each type declares all of these attributes. If one is missing,
    ``dispatch.handles`` raises TypeError.
    """

    result: ClassVar[type[AnyResult] | type[ErrorCode]]
    """The type of the result. It can be made from an error code alone, so that the request can be
    refused."""
    route: ClassVar[ShardRoute]
    """The rule that finds the shard. If the request is not about one group, ``group_id`` is a class
    attribute with the value None."""
    parks: ClassVar[bool]
    """True if the answer may come in a later step. Types that park must not share a type of result
    with types that do not: the runtime recognizes the answers by their type (``PARKED_RESULTS``).
    """
    reads: ClassVar[bool]
    """True if the request writes nothing, and its step answers no other request."""
    waits: ClassVar[bool]
    """True if each answer waits until the earlier records of the shard are durable. False if some
    answers need not wait (``Reply.waits``).
    """
    while_loading: ClassVar[ErrorCode]
    """The answer of a shard that is LOADING (docs/design.md#loading)."""
    when_full: ClassVar[ErrorCode | None]
    """The error for the request if too much waits for the storage. On this error clients look up
    the coordinator again after their back-off, and repeat the request. None: the request is never
    refused.
    """

    def refused(self, code: ErrorCode) -> Result:
        """Return the result that refuses the whole request."""
        return self.result(code)

    def loading_answer(self) -> Result:
        """Return the answer that the request gets while its shard is LOADING."""
        return self.refused(self.while_loading)


class GroupRequest(AnyRequest, frozen=True):
    """A request about one group. It goes to the shard of that group."""

    group_id: str
    route = ShardRoute.GROUP
    if_absent: ClassVar[GroupType] = GroupType.CLASSIC
    """The type of groups whose handler gets the request if the group does not exist."""


class GroupWrite(GroupRequest, frozen=True):
    """A request that may change a group. Subclasses override some of these values."""

    parks = False
    reads = False
    waits = True
    while_loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    when_full = ErrorCode.COORDINATOR_NOT_AVAILABLE


class GroupRead(GroupRequest, frozen=True):
    """A request that only reads a group. Subclasses override some of these values."""

    parks = False
    reads = True
    waits = True
    while_loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    when_full: ClassVar[ErrorCode | None] = ErrorCode.COORDINATOR_NOT_AVAILABLE
