"""Work that continues a long step in the next step, so that no step blocks the event loop for too
long.

There are two cases. Members move to a large target in the step after the one that recorded it. The
computation of a target for many topic names begins in a step of its own.
"""

from __future__ import annotations

from typing import Final

from groupkeeper.coordinator.core.step import Step
from groupkeeper.coordinator.core.work import Work

LARGE_BYTES: Final = 256 * 1024
"""If the record of a target is larger, no member moves to the target in the same step. 20,000
partitions have this size.
"""


class FollowWork(Work, frozen=True, kw_only=True):
    """Asks for a later call of ``work_done``. Nothing is computed, and the outcome is None.

    If the computation of a target was postponed, it begins then. Otherwise the members whose
    heartbeats wait move towards their targets.
    """


def is_large(step: Step) -> bool:
    """Return True if the target that this step has recorded is large."""
    return step.record_bytes > LARGE_BYTES
