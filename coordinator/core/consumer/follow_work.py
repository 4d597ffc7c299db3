"""The rest of a long step, which is done in the next step.

So no step holds the loop for too long. A member follows a large target in the step after the
target's, and the computation of a target for many names begins in a step of its own.
"""

from __future__ import annotations

from typing import Final

from groupkeeper.coordinator.core.step import Step
from groupkeeper.coordinator.core.work import Work

LARGE_BYTES: Final = 256 * 1024
"""If a target has so many bytes, nobody follows it in the same step: 20,000 partitions."""


class FollowWork(Work, frozen=True, kw_only=True):
    """Nothing to compute: the outcome is None, and comes in a later turn of the loop. A postponed
    computation then begins. If there is none, the member whose heartbeat waits follows its target.
    """


def is_large(step: Step) -> bool:
    """Return True if the target that this step has recorded is large."""
    return step.record_bytes > LARGE_BYTES
