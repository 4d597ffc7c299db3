"""Computations that take too long for the event loop.

A step asks for them (``Step.work``), the runtime carries them out, and ``Shard.work_done`` gets
each outcome. They are soft state: a load forgets them.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, TypeAlias

import msgspec


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """One computation for one group. Each type of groups defines its own kinds of work."""

    group_id: str
    epoch: int
    """The group epoch for which the computation is made."""


class WorkFailure(Enum):
    """The reason why a computation has no result. The runtime passes it as the outcome, and raises
    no exception.
    """

    RAISED = "raised"
    """The function raised an exception."""
    INVALID = "invalid"
    """The assignor returned an assignment that breaks the rules. Only assignors from other
    installed packages do so.
    """
    DIED = "died"
    """The other process ended, or could not be started."""
    TIMED_OUT = "timed_out"
    """The computation took longer than the configured time, and was killed."""
    REFUSED = "refused"
    """Too many computations wait."""
    TOO_LARGE = "too_large"
    """The storage would not take the result."""


class WorkFailed(msgspec.Struct, frozen=True):
    """The outcome of a computation that has no result, with the reason."""

    failure: WorkFailure
    message: str


WorkOutcome: TypeAlias = object
"""The result of a ``Work``, or ``WorkFailed``. Each kind of work has its own type of result."""

NO_WORK: Final[tuple[Work, ...]] = ()
