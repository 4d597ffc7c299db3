"""Work that continues a long step in the next step, so that no step blocks the event loop for too
long.

There are two cases. If a recorded target is large, the members move to it only in the next step. If
the group has many topic names, the computation of a target begins in its own step.
"""

from __future__ import annotations

from typing import Final

from groupkeeper.coordinator.core.step import Step
from groupkeeper.coordinator.core.work import Work

LARGE_BYTES: Final = 256 * 1024
"""If the record of a target is larger, no member moves to the target in the step that records it.
20,000 partitions have this size.
"""


class FollowWork(Work, frozen=True, kw_only=True):
    """Work without a computation: the runtime calls ``work_done`` in the next iteration of the
    event loop, and the outcome is None.

    If the computation of a target was postponed, it begins then. Otherwise the members whose
    heartbeats are parked move towards their targets.
    """


def is_large(step: Step) -> bool:
    """Return True if the target that this step has recorded is large."""
    return step.record_bytes > LARGE_BYTES
