"""How many examples a Hypothesis test tries: all of them, or a share (``make test-oldest``). No
test fails because they take long: a busy machine is slow.
"""

from __future__ import annotations

import os
from typing import Final

from hypothesis import HealthCheck, settings

SHARE: Final = float(os.environ.get("EXAMPLES_SHARE", "1"))


def examples(most: int) -> int:
    return max(1, round(most * SHARE))


def load_profile() -> None:
    """Set the number for tests that name none, and leave out limits of time."""
    settings.register_profile(
        "share",
        max_examples=examples(settings.default.max_examples),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("share")
