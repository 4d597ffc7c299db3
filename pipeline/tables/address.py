"""Checks of the address of a folder (pure)."""

from __future__ import annotations


def pattern_problem(address: str) -> str:
    """Return why Spark would not use an address literally; "" if it would.

    Spark writes to a folder whose name is a pattern, but reads from the folders that match it.
    """
    if wild := sorted(set("{}[]*?\\").intersection(address)):
        return (
            f"{address}: Spark reads {' and '.join(wild)} as a pattern of names. Choose a path "
            "without them, or link to it by one"
        )
    return ""
