"""Checks that Spark will not read the address of a folder as a pattern (pure)."""

from __future__ import annotations


def pattern_problem(address: str) -> str:
    """Return a message if an address has characters that Spark reads as a pattern; "" if it has
    none.

    Spark writes to a folder with literally this name, but reads from all folders that match the
    pattern.
    """
    if wild := sorted(set("{}[]*?\\").intersection(address)):
        return (
            f"{address}: Spark reads {' and '.join(wild)} as a pattern of names. Choose a path "
            "without these characters, or make a link without them"
        )
    return ""
