"""How much is compared: CASES, SEED and ALL_VERSIONS of ``make differential``."""

from __future__ import annotations

from typing import NamedTuple

from tests.helpers.daemon.asked_numbers import RefusedError, switch, whole_number


class Asked(NamedTuple):
    """What the environment asks for, or why that is refused."""

    cases: int = 100
    """Random lives."""
    seed: int = 1
    all_versions: bool = False
    """Every version of every API, instead of the lowest, the first flexible and the highest."""
    refusal: str = ""
    """Told where something is to be compared: tests that ask no server do not care."""


def asked() -> Asked:
    """Read the environment."""
    try:
        return Asked(
            whole_number("CASES", Asked().cases, least=1),
            whole_number("SEED", Asked().seed, least=0),
            switch("ALL_VERSIONS"),
        )
    except RefusedError as error:
        return Asked(refusal=str(error))


ASKED = asked()
