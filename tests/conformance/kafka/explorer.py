"""Draws random lives until one differs, and shrinks it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import FlakyFailure

from tests.conformance.kafka.generated import Life, lives
from tests.conformance.kafka.runner import Figures, Outcome, settled

Lived = Callable[[Life, int], Outcome]
"""Leads a life on both sides, with that patience, and says what came of it."""


def explore(
    number: int, count: int, lived: Lived, figures: Figures, stopping: threading.Event
) -> str:
    """Draw that many lives from the seed ``number``, or until one differs.

    Returns nothing, or the shortest life that differed. The first one decides: it differed by the
    rule of ``settled``, and what becomes of it when it is shrunk takes nothing of that back.
    """
    found: list[Outcome] = []

    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @seed(number)
    @given(lives())
    def alike(life: Life) -> None:
        if stopping.is_set():
            return
        outcome = (
            _twice(life, lived)
            if found
            else settled(f"SEED={number}", partial(lived, life), figures)
        )
        if outcome.differs:
            found.append(outcome)
            raise AssertionError("both sides do not do the same")

    try:
        alike()
    except AssertionError:
        return f"SEED={number}: {found[-1].told()}"
    except FlakyFailure:
        return f"SEED={number}, which shrank to a life that is alike: {found[0].told()}"
    return ""


def _twice(life: Life, lived: Lived) -> Outcome:
    """A shorter life stands for the one that was found only where it differs two times."""
    outcome = lived(life, 1)
    return lived(life, 1) if outcome.differs else outcome
