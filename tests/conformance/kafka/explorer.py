"""Draws random lives until one differs, and shrinks it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from typing import TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.conformance.kafka.generated import Life, lives
from tests.conformance.kafka.mixed_lives import MixedLife
from tests.conformance.kafka.runner import Figures, Outcome, settled

AnyLife = TypeVar("AnyLife", Life, MixedLife)
Lived = Callable[[AnyLife, int], Outcome]
"""Leads a life on both sides, with that patience, and says what came of it."""

SHRINK_S = 120.0
"""How long shorter lives are tried; Hypothesis alone would go on for five minutes and more."""


class _Over(BaseException):
    """No more lives are led. It is no Exception, for Hypothesis would shrink that, too."""


def explore(
    number: int,
    count: int,
    lived: Lived[Life],
    figures: Figures,
    stopping: threading.Event,
    clock: Callable[[], float] = time.monotonic,
) -> str:
    """Draw lives of classic groups, and search among them."""
    return search(lives(), number, count, lived, figures, stopping, clock)


def search(
    drawn: st.SearchStrategy[AnyLife],
    number: int,
    count: int,
    lived: Lived[AnyLife],
    figures: Figures,
    stopping: threading.Event,
    clock: Callable[[], float] = time.monotonic,
) -> str:
    """Draw that many lives from the seed ``number``, or until one differs.

    Returns nothing, or the shortest life that was found to differ within ``SHRINK_S``. The first
    one decides: it differed by the rule of ``settled``, and what becomes of it when it is shrunk
    takes nothing of that back. What is known to differ is not led again.
    """
    found: dict[AnyLife, Outcome] = {}
    until_s = inf

    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @seed(number)
    @given(drawn)
    def alike(life: AnyLife) -> None:
        nonlocal until_s
        if stopping.is_set() or clock() >= until_s:
            raise _Over
        if life not in found:
            outcome = (
                _twice(life, lived)
                if found
                else settled(f"SEED={number}", partial(lived, life), figures)
            )
            if outcome.differs:
                found[life] = outcome
                until_s = min(until_s, clock() + SHRINK_S)
        if life in found:
            raise AssertionError("both sides do not do the same")

    with suppress(AssertionError, _Over):
        alike()
    return f"SEED={number}: {found[min(found, key=_length)].told()}" if found else ""


def _length(life: Life | MixedLife) -> tuple[int, int]:
    return len(life.acts), len(repr(life))


def _twice(life: AnyLife, lived: Lived[AnyLife]) -> Outcome:
    """A shorter life stands for the one that was found only where it differs two times."""
    outcome = lived(life, 1)
    return lived(life, 1) if outcome.differs else outcome
