"""What is compared: CASES, SEED, ALL_VERSIONS and POLICY of ``make differential``."""

from __future__ import annotations

import os
from typing import NamedTuple

from groupkeeper.coordinator.core.limits import MIGRATION_POLICIES
from tests.helpers.daemon.asked_numbers import RefusedError, switch, whole_number


class Asked(NamedTuple):
    """What the environment asks for, or why that is refused."""

    cases: int = 100
    """Random lives."""
    seed: int = 1
    all_versions: bool = False
    """Every version of every API, instead of the lowest, the first flexible and the highest."""
    policy: str = ""
    """``group.consumer.migration.policy`` of all servers. Where none is asked for, those with small
    limits have ``upgrade`` and the others ``bidirectional``.
    """
    refusal: str = ""
    """Told where something is to be compared: tests that ask no server do not care."""


def asked() -> Asked:
    """Read the environment."""
    try:
        return Asked(
            whole_number("CASES", Asked().cases, least=1),
            whole_number("SEED", Asked().seed, least=0),
            switch("ALL_VERSIONS"),
            _policy(),
        )
    except RefusedError as error:
        return Asked(refusal=str(error))


def _policy() -> str:
    found = os.environ.get("POLICY", Asked().policy)
    if found and found not in MIGRATION_POLICIES:
        raise RefusedError(f"POLICY is one of {', '.join(MIGRATION_POLICIES)}, not {found}.")
    return found


ASKED = asked()
