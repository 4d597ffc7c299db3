"""Checks that Spark will not read the address of a folder as a pattern (pure)."""

from __future__ import annotations


def pattern_problem(address: str) -> str:
    """Return a message if an address has characters that Spark reads as a pattern; otherwise "".

    Spark would write to a folder with exactly this name, but would read from every folder whose
    name matches the pattern.
    """
    if wild := sorted(set("{}[]*?\\").intersection(address)):
        return (
            f"{address}: Spark reads {' and '.join(wild)} as a pattern of names. Choose a path "
            "without these characters, or make a link without them"
        )
    return ""
