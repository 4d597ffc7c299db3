"""How many examples a Hypothesis test tries: all of them, or a share (``make test-oldest``)."""

from __future__ import annotations

import os
from typing import Final

from hypothesis import settings

SHARE: Final = float(os.environ.get("EXAMPLES_SHARE", "1"))


def examples(most: int) -> int:
    return max(1, round(most * SHARE))


def load_profile() -> None:
    """Set the number for tests that name none."""
    settings.register_profile("share", max_examples=examples(settings.default.max_examples))
    settings.load_profile("share")
