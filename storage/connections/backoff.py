"""Computes the pause before the next retry. It grows with each failure, up to a limit."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass
class Backoff:
    """Doubles the pause after each failure, up to a limit. After a success the pause is short
    again.

    A fifth of each pause is random, so that clients that failed together do not retry together.
    """

    first_ms: int = 100
    most_ms: int = 1_000
    failures: int = 0

    def next_s(self) -> float:
        """Count one failure and return the pause in seconds."""
        wait_ms = min(self.most_ms, self.first_ms << min(self.failures, 30))
        self.failures += 1
        return wait_ms / 1000 * random.uniform(0.8, 1)  # noqa: S311 - spreads load, guards nothing

    def succeeded(self) -> None:
        """Make the pause after the next failure the shortest one again."""
        self.failures = 0
