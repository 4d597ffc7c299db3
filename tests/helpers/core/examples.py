"""The number of examples that a Hypothesis test tries: all of them, or a share (``make
test-oldest``). No test fails because its examples take long, since the machine may be busy.
"""

from __future__ import annotations

import os
from typing import Final

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

LIVES_AT_ONCE: Final = 500
SHARE: Final = float(os.environ.get("EXAMPLES_SHARE", "1"))


def examples(most: int) -> int:
    return max(1, round(most * SHARE))


def run_lives(machine: type[RuleBasedStateMachine], steps: int, lives: int) -> None:
    """Try random lives of a state machine: ``lives`` of them, or a share.

    Hypothesis keeps 170 KB of each life until the run ends, so a large number is divided into
    several runs.
    """
    left = examples(lives)
    while left > 0:
        now = min(left, LIVES_AT_ONCE)
        left -= now
        run_state_machine_as_test(
            machine, settings=settings(stateful_step_count=steps, max_examples=now)
        )


def load_profile() -> None:
    """Reduce the default number of examples to the share, and switch off all time limits."""
    settings.register_profile(
        "share",
        max_examples=examples(settings.default.max_examples),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("share")
